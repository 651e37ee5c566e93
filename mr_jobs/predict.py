"""Labels of rows a model has not seen, or without an embedding at hand: embed and assign in map tasks only.

``python -m mr_jobs.predict -r local --model model.npz --output-dir labels data.csv``
"""

from __future__ import annotations

from mr_jobs.base import LabelJob


class PredictJob(LabelJob):
    @classmethod
    def describe(cls, step):
        return step.embed.to_dict() | {"centroids": step.assign.centroids[None]}

    def task_pass(self):
        from apnc.embed import PredictMap
        from apnc.kmeans import AssignMap
        from mr_jobs.embed import stored_pass

        stored = stored_pass(self.options.model)
        if stored is None:
            return super().task_pass()
        embed, values = stored
        return PredictMap(embed, AssignMap(values["centroids"][0], embed.embedding.metric))

    def build(self, described):
        from apnc.embed import PredictMap, embed_map_from_dict
        from apnc.kmeans import AssignMap

        assign = AssignMap(described["centroids"][0], described["embedding.metric"])
        return PredictMap(embed_map_from_dict(described), assign)

    def add_options(self, parser):
        from apnc.options import add_input

        add_input(parser)

    def launch(self, driver):
        from apnc.embed import EmbedMap, PredictMap
        from apnc.kmeans import AssignMap

        model = driver.model()
        assign = AssignMap(driver.centroids(model), model.metric)
        driver.map_rows(type(self), PredictMap(EmbedMap.of(model), assign))


if __name__ == "__main__":
    PredictJob.run()
