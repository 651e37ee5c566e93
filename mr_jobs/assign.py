"""The labels: cluster and distance of every embedded row, in map tasks only.

``python -m mr_jobs.assign -r local --model model.npz --output-dir labels embedding``
"""

from __future__ import annotations

from mr_jobs.base import LabelJob


class AssignJob(LabelJob):
    @classmethod
    def describe(cls, step):
        return {"centroids": step.centroids[None], "embedding.metric": step.metric}

    def build(self, described):
        from apnc.kmeans import AssignMap

        return AssignMap(described["centroids"][0], described["embedding.metric"])

    def launch(self, driver):
        from apnc.kmeans import AssignMap

        model = driver.model()
        driver.map_embedding(type(self), AssignMap(driver.centroids(model), model.metric))


if __name__ == "__main__":
    AssignJob.run()
