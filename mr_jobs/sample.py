"""The sample pass: map tasks keep the rows of smallest hash, one reducer writes the sample.

``python -m mr_jobs.sample -r local --seed 0 --output sample.npz data.csv``
"""

from __future__ import annotations

from mr_jobs.base import FoldJob


class SampleJob(FoldJob):
    pass_option = "--settings"
    finishes = True

    @classmethod
    def describe(cls, step):
        return {"seed": step.seed, "size": step.size, "threshold": int(step.threshold), "width": step.width}

    def build(self, described):
        from apnc.sampling import SampleFold

        return SampleFold(**described)

    @staticmethod
    def pack_result(result):
        return result.to_dict()

    @staticmethod
    def unpack_result(packed):
        from apnc.sampling import Sample

        return Sample.from_dict(packed)

    def add_options(self, parser):
        from apnc.options import add_input, add_sampling
        from mr_jobs.standalone import add_output

        add_output(parser, "sample.npz")
        add_sampling(parser)
        add_input(parser)

    def launch(self, driver):
        driver.save_sample(driver.sample(type(self)))


if __name__ == "__main__":
    SampleJob.run()
