"""The protocols there are, each as its official code has it, with the source of every fact."""

from collections.abc import Mapping

from ragbench.errors import UnknownNameError
from ragbench.experiments.score.protocols.protocol import Measure, Protocol

_TOKENS = "tokens are estimated (within 8 % of cl100k_base on the texts tried), not GPT-4o's"
_JUDGE_PROMPT = "the judge's prompt is worded by ragbench, with the same three criteria"
_CONTAIN = "a gold answer that normalises to nothing must match exactly, not always"


def _all(*names: str) -> tuple[Measure, ...]:
    return tuple(Measure(name) for name in names)


def _four(*prefixes: str) -> tuple[str, ...]:
    parts = ("em", "f1", "precision", "recall")
    return tuple(f"{prefix}_{part}" for prefix in prefixes for part in parts)


_ALL = (
    Protocol(
        name="hotpotqa",
        description="HotpotQA's official script: answer, supporting facts and joint",
        source="hotpot_evaluate_v1.py (Yang et al. 2018, arXiv:1809.09600)",
        measures=_all("em", "f1", *_four("sp", "joint")),
        datasets=("hotpotqa",),
        view="paragraph",
        golds="first",
        unchecked=("the official numbers are over the 7,405 questions of the development set",),
    ),
    Protocol(
        name="musique",
        description="MuSiQue's official script: answer with aliases, supporting paragraphs",
        source="evaluate_v1.0.py (Trivedi et al. 2022, arXiv:2108.00573)",
        measures=_all("em", "f1", "support_f1"),
        datasets=("musique",),
        view="paragraph",
        unchecked=("MuSiQue-Full, with unanswerable pairs, is not computed",),
    ),
    Protocol(
        name="2wiki",
        description="2WikiMultiHopQA's official script: answer, sentences, evidence and joint",
        source="2wikimultihop_evaluate_v1.1.py (Ho et al. 2020, arXiv:2011.01060)",
        measures=_all("em", "f1", *_four("sp", "evidence", "joint")),
        datasets=("2wikimultihopqa",),
        view="paragraph",
    ),
    Protocol(
        name="ircot",
        description="IRCoT's evaluation: DROP's EM and F1 beside HotpotQA's",
        source="evaluate.py of IRCoT (Trivedi et al. 2023, arXiv:2212.10509)",
        measures=_all("drop_em", "drop_f1", "em", "f1"),
        datasets=("hotpotqa", "musique", "2wikimultihopqa"),
        view="paragraph",
        setting="pooled",
        k=(2, 4, 6, 8),
        questions=500,
        temperature=0.0,
        prompt="20 hand-written chains per data set as demonstrations, a separate reader",
        unchecked=(
            "BM25 by Elasticsearch over the data set's own corpus, at most 15 paragraphs in all",
            "k and distractors chosen on 100 development questions; mean of three sets of "
            "demonstrations",
            "support is not predicted: the official joint numbers there are of dummies",
        ),
    ),
    Protocol(
        name="hipporag2",
        description="HippoRAG 2's evaluation: EM, SQuAD F1 and passage recall",
        source="HippoRAG 2 (Gutiérrez et al. 2025, arXiv:2502.14802) and its code",
        measures=_all("em", "squad_f1", "recall@2", "recall@5"),
        datasets=("hotpotqa", "musique", "2wikimultihopqa"),
        view="paragraph",
        setting="pooled",
        k=(5,),
        questions=1000,
        temperature=0.0,
        prompt="one MuSiQue chain as demonstration for all data; the text after 'Answer:'",
        unchecked=(
            "recall there compares passage strings of one ranking; here pids of the union",
            "its IRCoT reads up to 200 passages per thought unless told otherwise",
        ),
    ),
    Protocol(
        name="arag",
        description="A-RAG's evaluation: contain-match and judged accuracy of what is not blank",
        source="A-RAG (Du et al. 2026) and its code",
        measures=(
            Measure("judge_arag", "not_blank", label="LLM-Acc"),
            Measure("contain", "not_blank", label="Cont-Acc"),
            Measure("retrieved_tokens"),
        ),
        datasets=("arag", "graphrag_bench"),
        view="chunk",
        setting="pooled",
        k=(5,),
        golds="first",
        judge="rule arag: no question, exactly 'correct'; gpt-5-mini at temperature 0",
        judge_model="gpt-5-mini",
        temperature=0.0,
        answer_styles=("free", "long"),
        prompt="no instruction to answer briefly",
        always=(_JUDGE_PROMPT, _CONTAIN, _TOKENS),
        unchecked=(
            "15 loops in the example configuration, 10 if unset; 128,000 tokens of messages",
            "a failed question counts as predicted and wrong: there its error is its prediction",
            "the paper names the judge; its code takes the model of its environment",
        ),
    ),
    Protocol(
        name="linearrag",
        description="LinearRAG's evaluation: contain-match and judged accuracy over all",
        source="LinearRAG (arXiv:2510.10114) and its code",
        measures=(
            Measure("judge_arag", "all", label="LLM-Acc"),
            Measure("contain", "all", label="Contain-Acc"),
        ),
        datasets=("arag", "graphrag_bench"),
        view="chunk",
        setting="pooled",
        k=(5,),
        golds="first",
        judge="rule linearrag: no question, exactly 'correct'; the answering model",
        self_judged=True,
        answer_styles=("free", "long"),
        prompt="HippoRAG's reading prompt without a demonstration; 2,000 tokens",
        always=(_JUDGE_PROMPT, _CONTAIN),
    ),
    Protocol(
        name="graphrag-bench",
        description="GraphRAG-Bench's generation scores by question type",
        source="generation_eval.py of GraphRAG-Bench (Xiang et al. 2025, arXiv:2506.05690)",
        measures=(
            Measure("rouge_l", "scored", ("Fact Retrieval", "Complex Reasoning")),
            *(
                Measure("answer_correctness", "scored", (kind,), f"answer_correctness, {kind}")
                for kind in (
                    "Fact Retrieval",
                    "Complex Reasoning",
                    "Contextual Summarize",
                    "Creative Generation",
                )
            ),
            Measure("coverage", "scored", ("Contextual Summarize", "Creative Generation")),
            Measure("faithfulness", "scored", ("Creative Generation",)),
        ),
        datasets=("graphrag_bench",),
        view="chunk",
        setting="pooled",
        golds="first",
        judge="statements by an LM at temperature 0; similarity by bge-large-en-v1.5",
        judged_by="statements",
        temperature=0.0,
        answer_styles=("long",),
        always=(
            "the judge's prompts are worded by ragbench, without demonstrations; statements are "
            "matched by number",
            "an unreadable reply is unscored here; published, it can score 1 for two empty lists",
            "coverage takes the gold statements of answer_correctness, not a second list of facts",
            "ROUGE-L here stems no words",
        ),
        unchecked=("means leave out what has no score: read the number beside each",),
    ),
)

PROTOCOLS: Mapping[str, Protocol] = {protocol.name: protocol for protocol in _ALL}


def get_protocol(name: str) -> Protocol:
    """The protocol called `name`.

    Raises:
        UnknownNameError: there is none.
    """
    if name not in PROTOCOLS:
        raise UnknownNameError("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]
