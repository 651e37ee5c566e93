"""One k-means pass over an embedding: Z, g and the objective per run, mapped, combined, reduced ([EC] Algorithm 2).

``python -m mr_jobs.kmeans -r local --model model.npz --output next.npz embedding``, again and again until it says
that the passes are over.
"""

from __future__ import annotations

from mr_jobs.base import FoldJob


class KMeansJob(FoldJob):
    combines = True

    @classmethod
    def describe(cls, step):
        return {"centroids": step.centroids, "embedding.metric": step.metric}

    def build(self, described):
        from apnc.kmeans import KMeansFold

        return KMeansFold(described["centroids"], described["embedding.metric"])

    def add_options(self, parser):
        from mr_jobs.standalone import add_output

        add_output(parser, "the model after the pass")

    def launch(self, driver):
        driver.save_model(driver.kmeans_pass(type(self)))


if __name__ == "__main__":
    KMeansJob.run()
