"""Third-party optimizers: any `dspy.teleprompt.Teleprompter`, called as DSPy calls it.

It is given as `path/to/file.py:Class` or `package.module:Class`, registered by an entry point, or
passed as an object. Its constructor and `compile` receive the arguments that they declare under
DSPy's names: student, training and validation questions, the metric in its full form, teacher,
prompt model, seed and workers. All other arguments are parameters. It works on the same students as
the built-in optimizers, so limits, log, resume and recorded candidates are the same.
"""

import copy
import inspect
from functools import lru_cache
from typing import Any, ClassVar, cast

import dspy
from dspy import AdapterParseError, LMError

from ragbench.errors import ConfigError, RagbenchError
from ragbench.external import find, is_kept, keep, tag_of
from ragbench.lms.factory import keep_lm, make_lm
from ragbench.lms.lm import OWN, RagbenchLM
from ragbench.lms.unmetered import noticing_unmetered
from ragbench.optimizers.arguments import (
    SUPPLIED,
    Arguments,
    knobs_of,
    passed_to,
    settings_of,
    student_of,
    supplied_to,
)
from ragbench.optimizers.base import OPTIMIZERS, Optimizer, OptimizerKnobs
from ragbench.optimizers.task import NEVER, Needs, SearchResult, Size, Task
from ragbench.programs.core import RAGProgram
from ragbench.user_code import contained, digest_of_plugin, digest_of_spec, load_object, message_of


class OwnOptimizer(Optimizer):
    """A third-party optimizer. `wrapped` is its class, or the user's object."""

    wrapped: ClassVar[Any]
    sees = "what it asks for"
    changes = "what it likes"
    formula = "unknown; give --max-calls"
    keeps_ties = True
    needs = Needs(prompt_lm=True, teacher=True)

    def estimate(self, size: Size) -> None:
        """Return None, because no formula is known."""

    @property
    def identity(self) -> Arguments:
        """Name, parameters and code identity. Changed code is another compile."""
        if is_kept(self.name):
            source = tag_of(self.name)
        elif ":" in self.name:
            source = digest_of_spec(self.name, "--optimizer")
        else:
            source = digest_of_plugin(type(self).wrapped)
        return {**super().identity, "source": source}

    def check(self, size: Size) -> None:
        """Check that every required argument is set, which raises ConfigError otherwise."""
        super().check(size)
        for function in _functions_of(type(self).wrapped):
            for name, parameter in settings_of(function).items():
                needed = parameter.default is inspect.Parameter.empty and name not in SUPPLIED
                if needed and name not in self.knobs.model_fields_set:
                    raise ConfigError(f"optimizer {self.name} needs --opt-set {name}=VALUE")

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """Return the result of its `compile`, or the student if it returns None.

        Args:
            student: The program to start from. May be changed.
            task: Questions, metric and LMs.

        Raises:
            ConfigError: It fails, or does not return a program of the student's class.
        """
        fields = {}
        for name, predictor in student.named_predictors():
            signature = predictor.signature
            fields[name] = [*signature.fields]
            # Some optimizers write into the signature class.
            predictor.signature = signature.with_instructions(signature.instructions)
        supplied = self._supplied(student, task)
        try:
            with (
                contained(f"optimizer {self.name}"),
                dspy.context(**{OWN: True}),
                noticing_unmetered(),
            ):
                compile = self._optimizer(supplied).compile
                arguments = supplied_to(compile, supplied) | passed_to(compile, self.knobs)
                compiled = compile(**{student_of(compile): student}, **arguments)
        except (RagbenchError, LMError, AdapterParseError):
            raise
        except Exception as error:  # third-party code may raise anything
            reason = f"{type(error).__name__}: {message_of(error)}"
            raise ConfigError(
                f"optimizer {self.name} failed: {' '.join(reason.split())}"
            ) from error
        if compiled is None:
            compiled = student
        if not isinstance(compiled, type(student)):
            raise ConfigError(
                f"optimizer {self.name} returned {type(compiled).__name__}, not a program of the "
                f"class {type(student).__name__}"
            )
        for name, predictor in compiled.named_predictors():
            returned = [*predictor.signature.fields]
            if returned != fields.get(name):
                raise ConfigError(
                    f"optimizer {self.name} changed the fields of {name} to {', '.join(returned)}; "
                    f"they must stay {', '.join(fields.get(name, ['none']))}"
                )
        return SearchResult(compiled)

    def _supplied(self, student: RAGProgram, task: Task) -> Arguments:
        """Return the arguments from the task, by DSPy's names."""
        teacher = None
        if task.teacher is not None:
            teacher = student.deepcopy()
            teacher.set_lm(task.seeded(task.teacher))
        return {
            "trainset": task.trainset,
            "valset": task.valset,
            "devset": task.valset,
            "eval_kwargs": {"num_threads": task.workers, "display_progress": False},
            "metric": task.metric,
            "teacher": teacher,
            "teacher_settings": task.teacher_settings,
            "prompt_model": task.writer,
            "prompt_lm": task.writer,
            "reflection_lm": task.writer,
            "task_model": task.seeded(task.lm),
            "lm": task.seeded(task.lm),
            "num_threads": task.workers,
            "max_errors": NEVER,
            "seed": task.seed,
            "log_dir": str(task.log_folder / "own"),
        }

    def _optimizer(self, supplied: Arguments) -> Any:
        source = type(self).wrapped
        if isinstance(source, type):
            init = _functions_of(source)[0]
            return source(**supplied_to(init, supplied), **passed_to(init, self.knobs))
        # Copy the object, meter its LMs, and supply missing values such as the metric.
        optimizer = copy.copy(source)
        for name, value in vars(source).items():
            if isinstance(value, dspy.LM) and not isinstance(value, RagbenchLM):
                setattr(optimizer, name, make_lm(keep_lm(value)))
            elif value is None and name in SUPPLIED and supplied.get(name) is not None:
                setattr(optimizer, name, supplied[name])
        return optimizer


def _kind_of(source: Any) -> Any:
    return source if isinstance(source, type) else type(source)


def _functions_of(source: Any) -> list[Any]:
    """Return the constructor, if `source` is a class, and `compile`."""
    is_object = not isinstance(source, type)
    return [source.compile] if is_object else [source.__init__, source.compile]


def keep_optimizer(optimizer: Any, *, name: str = "") -> str:
    """Register an optimizer object or class and return its name in configs of this process.

    Args:
        optimizer: A `dspy.teleprompt.Teleprompter`, or its class.
        name: The caller's name, which identifies its compiles.

    Raises:
        ConfigError: It is not an optimizer.
    """
    kind = _kind_of(optimizer)
    if not (issubclass(kind, Optimizer) or callable(getattr(kind, "compile", None))):
        raise ConfigError(
            f"optimizer={repr(optimizer)[:80]} is neither a name nor a dspy.teleprompt.Teleprompter"
        )
    if isinstance(optimizer, Optimizer):
        raise ConfigError(f"pass optimizer={optimizer.name!r} as a name, with opt_set")
    return keep(optimizer, f"{kind.__module__}:{kind.__name__}", name=name)


@OPTIMIZERS.outside
def load_optimizer(spec: str) -> Any:
    """Return the class or the object that `spec` names.

    Raises:
        ConfigError: It cannot be imported, or the user did not name it in this command.
    """
    return find(spec) if is_kept(spec) else load_object(spec, "--optimizer")


def optimizer_of(source: Any, name: str) -> type[Optimizer]:
    """Return `source` as an optimizer of ragbench.

    Args:
        source: A class of ragbench or DSPy, or an object.
        name: Name of the optimizer.

    Raises:
        ConfigError: `source` is not an optimizer.
    """
    kind = _kind_of(source)
    if issubclass(kind, Optimizer):
        return cast(type[Optimizer], kind)
    if not callable(getattr(kind, "compile", None)):
        raise ConfigError(
            f"{name} is not an optimizer: it has no method compile(student, *, trainset, ...) like "
            "dspy.teleprompt.Teleprompter"
        )
    return _own(source, name)


@lru_cache(maxsize=64)
def _own(source: Any, name: str) -> type[Optimizer]:
    kind = _kind_of(source)
    summary = (inspect.getdoc(kind) or "a third-party optimizer").partition("\n")[0]
    members = {
        "name": name, "wrapped": source, "description": summary, "source": kind.__module__,
        "Knobs": knobs_of(OptimizerKnobs, _functions_of(source)),
    }  # fmt: skip
    return cast(type[Optimizer], type(kind.__name__, (OwnOptimizer,), members))


OPTIMIZERS.adapt = optimizer_of
