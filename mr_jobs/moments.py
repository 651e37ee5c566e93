"""One moments pass: Σ y and Σ y yᵀ, of rows or of a stored embedding, mapped and reduced in stripes.

``python -m mr_jobs.moments -r local --model model.npz --output next.npz INPUT``: rows for a method that rotates what it
is about to embed (rank-restricted), the folder of the embedding for the others.
"""

from __future__ import annotations

from mr_jobs.base import FoldJob


class MomentsJob(FoldJob):
    combines = True

    @classmethod
    def describe(cls, step):
        return step.to_dict()

    def build(self, described):
        from apnc.moments import moments_from_dict
        from apnc.passes import fold_from_dict

        return fold_from_dict(described, moments_from_dict)

    def add_options(self, parser):
        from apnc.options import add_input
        from mr_jobs.standalone import add_output

        add_output(parser, "the model after the pass")
        add_input(parser)

    def launch(self, driver):
        driver.save_model(driver.moments_pass(type(self)))


if __name__ == "__main__":
    MomentsJob.run()
