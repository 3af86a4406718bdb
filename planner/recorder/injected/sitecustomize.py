"""Starts the recorder in every Python under `planner record` once torch's optimizers are imported.

Any other `sitecustomize` further back on the path runs as well. Only modules that Python has loaded already
are imported: a program that never trains starts as fast as without it.
"""

import importlib.machinery
import importlib.util
import os
import sys


class _OptimizerImportHook:
    """An import hook that starts the recorder when torch.optim.optimizer is imported."""

    def find_spec(self, name, path=None, target=None):
        """Finds torch.optim.optimizer with a loader that prepares the recording; None for other modules."""
        if name != "torch.optim.optimizer":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_and_prepare(module):
            """Executes the module and prepares the recording."""
            run(module)
            _record_from_first_optimizer()

        spec.loader.exec_module = exec_and_prepare
        return spec


def _record_from_first_optimizer():
    """Patches `Optimizer.__init__` so that creating the first optimizer starts the recording."""
    import torch.optim.optimizer as optimizers

    make = optimizers.Optimizer.__init__

    def init_and_begin(self, *args, **kwargs):
        """Starts the recording before the first optimizer is created."""
        optimizers.Optimizer.__init__ = make
        from planner.recorder import begin_recording

        begin_recording()
        make(self, *args, **kwargs)

    optimizers.Optimizer.__init__ = init_and_begin


if os.environ.get("PLANNER_RECORD_PATH"):
    sys.meta_path.insert(0, _OptimizerImportHook())

_here = os.path.dirname(os.path.abspath(__file__))
_others = [folder for folder in sys.path if os.path.abspath(folder or ".") != _here]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _spec is not None and _spec.loader is not None:
    _spec.loader.exec_module(importlib.util.module_from_spec(_spec))
