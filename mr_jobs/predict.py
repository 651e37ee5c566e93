"""Labels of rows a model has not seen, or without an embedding at hand: embed and assign in map tasks only.

``python -m mr_jobs.predict -r local --model model.npz --output-dir labels data.csv``
"""

from __future__ import annotations

from mr_jobs.base import LabelJob


class PredictJob(LabelJob):
    @classmethod
    def describe(cls, step):
        return step.embed.to_dict() | step.assign.to_dict()

    def task_pass(self):
        from apnc.embed import PredictMap
        from apnc.kmeans import assign_from_dict
        from mr_jobs.embed import stored_pass

        stored = stored_pass(self.options.model)
        if stored is None:
            return super().task_pass()
        embed, values = stored
        return PredictMap(embed, assign_from_dict(values))

    def build(self, described):
        from apnc.embed import PredictMap, embed_map_from_dict
        from apnc.kmeans import assign_from_dict

        return PredictMap(embed_map_from_dict(described), assign_from_dict(described))

    def add_options(self, parser):
        from apnc.options import add_input

        add_input(parser)

    def launch(self, driver):
        from apnc.embed import EmbedMap, PredictMap
        from apnc.kmeans import AssignMap

        model = driver.model()
        assign = AssignMap.of(model, driver.centroids(model))
        driver.map_rows(type(self), PredictMap(EmbedMap.of(model), assign))


if __name__ == "__main__":
    PredictJob.run()
