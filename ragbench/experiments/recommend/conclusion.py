"""What an advice comes to, in sentences."""

from __future__ import annotations

from ragbench.experiments.recommend.advice import LEAST, Advice, Difference


def conclusion(advice: Advice) -> list[str]:
    """The recommendation first, then why; one sentence each."""
    best = advice.asked.labels[advice.best]
    if advice.gain is None:
        return [
            f"not enough questions: {_counted(advice)}, and a rule is learned from {LEAST} or more "
            "that share no gold passage; give runs over more questions",
            f"best single program of these questions: {best}",
        ]
    if advice.shown:
        return [f"use the router: {_against(advice)}", *_rest(advice)]
    return [f"use {best} for all questions: {_against(advice)}", *_unshown(advice), *_rest(advice)]


def _counted(advice: Advice) -> str:
    n = len(advice.asked.questions)
    return f"{n}" if advice.clusters == n else f"{n} in {advice.clusters} clusters"


def _against(advice: Advice) -> str:
    gain = advice.gain
    assert gain is not None
    held_out = f"{_signed(gain)} {advice.asked.objective} over the best single program, held out"
    if advice.shown:
        return f"it gains {held_out}"
    if gain.interval and gain.interval.high < 0:
        return f"routing loses: {held_out}"
    return f"no gain from routing is shown: {held_out}"


def _unshown(advice: Advice) -> list[str]:
    """What so many questions could have shown, and how many would show what was seen."""
    headroom, detectable = advice.headroom, advice.detectable
    assert headroom is not None
    lines = []
    if detectable is not None and detectable > headroom.mean:
        lines.append(
            f"not enough questions: {_counted(advice)} show a gain of {detectable:.3f} or more, "
            f"and even the oracle gains {headroom.mean:.3f}"
        )
    elif detectable is not None:
        lines.append(
            f"{_counted(advice)} questions show a gain of about {detectable:.3f} or more; a "
            "smaller one may be there"
        )
    if advice.needed is not None and advice.needed > len(advice.asked.questions):
        lines.append(f"to show a gain of the size seen takes about {advice.needed:,} questions")
    return lines


def _rest(advice: Advice) -> list[str]:
    regret, headroom, gain = advice.regret, advice.headroom, advice.gain
    assert regret is not None
    assert headroom is not None
    assert gain is not None
    share = ""
    if headroom.mean > 0:
        share = (
            f"; the router gains {max(0.0, gain.mean / headroom.mean):.0%} of what the oracle does"
        )
    lines = [
        f"regret of the router against the oracle, which knows the scores before it chooses and so "
        f"takes every stroke of luck: {_signed(regret)}{share}"
    ]
    return [*lines, *_over(advice)]


def _over(advice: Advice) -> list[str]:
    """Limits that the router passes on held-out questions."""
    assert advice.rule is not None
    lines = []
    for name, limit in advice.asked.limits.items():
        spent = advice.rule.spending[name]
        if spent is not None and spent > limit:
            lines.append(
                f"on held-out questions the router takes {name} {spent:.4g}, over the limit of "
                f"{limit:g}"
            )
    return lines


def _signed(difference: Difference) -> str:
    shown = f"{difference.mean:+.3f}"
    if difference.interval is None:
        return shown
    return f"{shown} [{difference.interval.low:+.3f}, {difference.interval.high:+.3f}]"
