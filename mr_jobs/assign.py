"""The labels: cluster and distance of every embedded row, in map tasks only.

``python -m mr_jobs.assign -r local --model model.npz --output-dir labels embedding``
"""

from __future__ import annotations

from mr_jobs.base import LabelJob


class AssignJob(LabelJob):
    @classmethod
    def describe(cls, step):
        return step.to_dict()

    def build(self, described):
        from apnc.kmeans import assign_from_dict

        return assign_from_dict(described)

    def launch(self, driver):
        from apnc.kmeans import AssignMap

        model = driver.model()
        driver.map_embedding(type(self), model, AssignMap.of(model, driver.centroids(model)))


if __name__ == "__main__":
    AssignJob.run()
