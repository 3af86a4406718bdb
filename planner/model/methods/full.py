"""Full training: every parameter is trained."""

from __future__ import annotations

from planner.model import MethodSettings, Model
from planner.model.methods import Base, Method


class Full(Method):
    name = "full"
    fine_tunes = False

    @classmethod
    def apply(cls, model: Model, training: MethodSettings, base: Base | None) -> Model:
        return model
