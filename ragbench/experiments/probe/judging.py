"""What the answers of a probe say: where there is room, and whether an optimizer reaches it.

The room is what the score lacks of 1, in steps that add up: what repairing the form gains, what the
gold passages gain on top of that (retrieval), and what is wrong even then (reading). How much of it
an optimizer turns into a gain is a judgement, written down here as chances; they were set before
they were tested on simulated LMs (`benchmarks/probe_chances.py`) and are no measurement of yours.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

from ragbench import optimizers
from ragbench.metrics import Interval, mean_interval, paired_interval
from ragbench.optimizers.demonstrations import is_whole
from ragbench.programs.core import RAGProgram

#: The least gain that is one.
MARGIN = 0.02
#: Below this chance of a gain the advice is not to compile.
UNLIKELY = 1 / 3
#: Two made-up differences beside those measured: 30 questions without one do not prove that there
#: is none.
_PSEUDO = 0.25
#: Chance that demonstrations of right answers, or instructions, gain what repairing the form does.
_FORM = {"demonstrations": 0.8, "instructions": 0.7}
#: Chance that they make answers steadily right which samples show to be right now and then.
_READING = {"demonstrations": 0.35, "instructions": 0.35}
#: Chance that they help to read where no sample was right.
_NEVER_RIGHT = 0.1
#: Chance that better queries find what the gold passages would gain.
_QUERIES = 0.3


@dataclass(frozen=True)
class Answers:
    """Scores of the same n questions, each in [0, 1], and what the runs showed.

    `gold` has the form repaired and the gold passages given; None where they could not be given.
    `samples` are the second and the third. `exact` counts zero-shot answers that are right to the
    letter, `found` questions whose gold passages were all found (None: the data names none).
    `own_queries` is whether the LM decided what is searched for, or whether anything is. `failed`
    counts runs of all arms that failed, which score 0.
    """

    zero_shot: Sequence[float]
    form: Sequence[float]
    gold: Sequence[float] | None
    samples: Sequence[Sequence[float]]
    exact: int
    own_queries: bool
    failed: int = 0
    found: int | None = None
    clusters: Sequence[str] | None = None

    @property
    def best(self) -> list[float]:
        """The best score of the three samples of each question."""
        return list(map(max, self.zero_shot, *self.samples))

    @property
    def varied(self) -> int:
        """Questions whose three samples have different scores."""
        worst = map(min, self.zero_shot, *self.samples)
        return sum(map(operator.ne, worst, self.best))


@dataclass(frozen=True)
class Means:
    """By what an optimizer can change a program.

    `demonstrations` is the chance in [0, 1] that it has any to show, `instructions` whether it
    writes them; `why` says what it cannot do, "" where it can.
    """

    demonstrations: float
    instructions: bool
    why: str = ""

    def chance(self, chances: dict[str, float]) -> float:
        """The chance that one of them succeeds, where each does with its chance in `chances`."""
        fails = 1 - self.demonstrations * chances["demonstrations"]
        if self.instructions:
            fails *= 1 - chances["instructions"]
        return 1 - fails


@dataclass(frozen=True)
class Judgement:
    """The chance in [0, 1] that the compile gains more than `MARGIN`, and why, in sentences."""

    chance: float
    sentences: Sequence[str]


def means_of(
    optimizer: optimizers.Optimizer,
    program: RAGProgram,
    answers: Answers,
    n_train: int,
    *,
    teacher: bool,
) -> Means:
    """What `optimizer` can change of `program`, by what it needs and what the probe showed."""
    instructions = optimizer.needs.prompt_lm
    why = cannot_help(optimizer, program)
    if why:
        return Means(0.0, False, why)
    if optimizer.needs.teacher:  # demonstrations are its right answers
        demonstrations = 0.9
        if not teacher:
            demonstrations = _some_exact(answers.exact, len(answers.zero_shot), n_train)
        if not teacher and not answers.exact and not instructions:
            why = (
                "no answer was right to the letter, and only such answers become demonstrations; "
                "give a --teacher"
            )
        return Means(demonstrations, instructions, why)
    return Means(float(not instructions), instructions)


def cannot_help(optimizer: optimizers.Optimizer, program: RAGProgram) -> str:
    """Why `optimizer` cannot change `program`, whatever it answers; "" where it can."""
    if not program.predictors():
        return "the program has no predictor that could be compiled"
    if optimizer.needs.prompt_lm or optimizer.needs.teacher:
        return ""
    labelled = {"question": "q", "answer": "a"}  # all that an optimizer sees of an example
    if any(is_whole(labelled, predictor.signature) for predictor in program.predictors()):
        return ""
    return (
        f"{optimizer.name} has no demonstration for this program: the data has only questions and "
        "answers, and its predictors take more"
    )


def _some_exact(exact: int, n: int, n_train: int) -> float:
    """The chance that one of `n_train` answers is right to the letter, as `exact` of `n` were.

    Beta-binomial, with the prior of Jeffreys.
    """
    wrong = n - exact + 0.5
    right = exact + 0.5
    none = math.lgamma(wrong + n_train) + math.lgamma(right + wrong) - math.lgamma(wrong)
    return 1 - math.exp(none - math.lgamma(right + wrong + n_train))


def chance_beyond(gains: Sequence[float]) -> float:
    """The chance that the mean of all questions' gains is above `MARGIN`; roughly, by a normal."""
    values = [*gains, _PSEUDO, -_PSEUDO]
    error = stdev(values) / math.sqrt(len(values))
    return 1 - NormalDist(fmean(values), error).cdf(MARGIN)


def judge(answers: Answers, means: Means, name: str, metric: str) -> Judgement:
    """What `answers` say of a compile by the optimizer called `name`."""
    read = answers.gold or answers.form
    form_gains = _differences(answers.zero_shot, answers.form)
    sample_means = list(map(fmean, zip(answers.zero_shot, *answers.samples, strict=True)))
    steady_gains = _differences(sample_means, answers.best)
    missing = [1 - score for score in read]
    chances = {
        "form": means.chance(_FORM) * chance_beyond(form_gains),
        "steadier reading": means.chance(_READING) * chance_beyond(steady_gains),
        "reading": _NEVER_RIGHT * chance_beyond(missing),
        "queries": 0.0,
    }
    if not means.instructions and not means.demonstrations:
        chances = dict.fromkeys(chances, 0.0)
    elif answers.own_queries and answers.gold is not None:
        chances["queries"] = _QUERIES * chance_beyond(_differences(answers.form, answers.gold))
    fails = 1.0
    for chance in chances.values():
        fails *= 1 - chance
    room = [1 - score for score in answers.zero_shot]
    chance = min(1 - fails, chance_beyond(room))
    sentences = [
        *_room_in_words(answers, metric),
        *_reach_in_words(answers, means, name),
        f"chance that {name} gains more than {MARGIN:g}: {chance:.2f}, a judgement that was "
        "tested on simulated LMs alone",
        _advice(answers, means, chance, chances, chance_beyond(form_gains)),
    ]
    return Judgement(chance, sentences)


def _differences(before: Sequence[float], after: Sequence[float]) -> list[float]:
    return list(map(operator.sub, after, before))


def _room_in_words(answers: Answers, metric: str) -> list[str]:
    """A sentence for each step from the score as it is to 1."""
    n = len(answers.zero_shot)
    mean = fmean(answers.zero_shot)
    ends = mean_interval(answers.zero_shot, (0.0, 1.0), answers.clusters)
    lines = [f"zero-shot: {metric} {mean:.3f}{_between(ends)}, {n} training questions"]
    if answers.failed:
        lines.append(f"{answers.failed} runs failed; they count as 0, so mend them first")
    lines.append(_step("form", "repairing the form", answers.zero_shot, answers.form, answers))
    scores = answers.form
    if answers.gold is None:
        lines.append("retrieval: not known; gold passages cannot be given to this program")
    else:
        scores = answers.gold
        step = _step("retrieval", "giving the gold passages", answers.form, scores, answers)
        if answers.found is not None:
            step += f"; they were all found for {answers.found} of {n} questions"
        lines.append(step)
    missing = [1 - score for score in scores]
    ends = mean_interval(missing, (0.0, 1.0), answers.clusters)
    lines.append(f"reading: {fmean(missing):.3f}{_between(ends)} is missing even then")
    lines.append(
        f"samples: {answers.varied} of {n} questions get answers of different score in three "
        f"samples; the best of the three would score {fmean(answers.best):.3f}"
    )
    return lines


def _step(
    name: str, change: str, before: Sequence[float], after: Sequence[float], answers: Answers
) -> str:
    gain = fmean(after) - fmean(before)
    ends = paired_interval(before, after, clusters=answers.clusters)
    word = "no room is shown"
    if ends is not None and ends.low > 0:
        word = "there is room"
    elif gain > MARGIN:
        word = "perhaps there is room"
    return f"{name}: {change} gives {gain:+.3f}{_between(ends, '+')}: {word}"


def _between(ends: Interval | None, sign: str = "") -> str:
    if ends:
        return f" {ends.words(sign)}"
    return ""


def _reach_in_words(answers: Answers, means: Means, name: str) -> list[str]:
    lines = []
    if means.why:  # with demonstrations other training questions may be answered right
        word = "may not" if means.demonstrations else "cannot"
        lines.append(f"{name} {word} help: {means.why}")
    if not answers.own_queries:
        lines.append(
            "no prompt of this program changes what is retrieved: it searches with the question "
            "as it is or not at all, so no optimizer reaches room in retrieval"
        )
    return lines


def _advice(
    answers: Answers,
    means: Means,
    chance: float,
    chances: dict[str, float],
    has_form_room: float,
) -> str:
    """What to do first, in one sentence."""
    retrieval = 0.0
    if answers.gold is not None:
        retrieval = fmean(answers.gold) - fmean(answers.form)
    if chance < UNLIKELY:
        instead = "nothing that was tried shows room that it reaches"
        if has_form_room > 0.5:
            instead = "repair the form instead (--form)"
        elif retrieval > MARGIN:
            instead = "change what is retrieved instead: another retriever, a larger k, or a "
            instead += "program that writes queries"
        elif fmean(answers.zero_shot) > 1 - MARGIN:
            instead = "the score is full"
        return f"advice: do not compile; {instead}"
    reason = max(chances, key=lambda kind: chances[kind])
    if reason == "form":
        return (
            "advice: the room is in the form; --form repairs it without a compile, so try that "
            "first, and compile for what it leaves"
        )
    return f"advice: a compile may help, by {reason}; ask the test split what it gained"
