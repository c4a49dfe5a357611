"""Why a drafted batch was faster or slower than a plain one, in measured figures."""

from __future__ import annotations

from specdemo.analysis.batch_metrics import BatchMetrics

ALL = 0.995
"""A share of rows below which the batch's shrinking shows in the figures of the sentence before."""


def explain_batch(plain: BatchMetrics, drafted: BatchMetrics) -> str | None:
    """What a round keeps, what it costs, and what waste there was; None where nothing was measured.

    A speed-up is tokens kept a round over the time of a round, both against plain decoding of the same batch:
    (τ · rows taking part) / (cost in plain steps · rows taking part in a plain round).
    """
    speeds = (plain.tokens_per_second, drafted.tokens_per_second)
    if None in speeds or not plain.rounds or not drafted.rounds:
        return None
    step = (plain.seconds - plain.ttft) / plain.rounds
    parts = [
        (drafted.draft_seconds / drafted.rounds / step, "drafting"),
        (drafted.verify_seconds / drafted.rounds / step, "one pass of the target"),
        (drafted.other_seconds / drafted.rounds / step, "everything else"),
    ]
    cost = sum(amount for amount, _ in parts)
    spent = ", ".join(f"{amount:.2f} for {what}" for amount, what in parts if amount >= 0.005)
    sentences = [
        f"{speeds[1] / speeds[0]:.2f}×: a round keeps {drafted.mean_acceptance_length:.2f} tokens a row and takes "
        f"{cost:.2f} plain steps ({spent})."
    ]
    if drafted.mean_rows < ALL * plain.mean_rows:
        sentences.append(
            f"Rows end apart, which leaves {drafted.mean_rows:.2f} of {drafted.rows} in a drafted round on "
            f"average and {plain.mean_rows:.2f} in a plain one."
        )
    if (drafted.padding or 0) > 0.1:
        sentences.append(f"{drafted.padding:.0%} of the positions computed only filled up shorter rows.")
    return " ".join(sentences)
