"""One small official file per layout."""

HOTPOT = [
    {
        "_id": f"h{i}",
        "question": f"Which town has the maker of thing {i}?",
        "answer": f"Town {i}",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": [[f"Thing {i}", 0], [f"Maker {i}", 1]],
        "context": [
            [f"Thing {i}", [f"Thing {i} was made by Maker {i}.", " It is blue."]],
            [f"Maker {i}", [" He was a maker.", f"Maker {i} lived in Town {i}."]],
            ["Shared", ["This paragraph is in every question.", ""]],
        ],
    }
    for i in range(10)
]
MUSIQUE = [
    {
        "id": f"2hop__{i}_{i + 100}",
        "question": f"Who wrote song {i} of the band?",
        "answer": f"Writer {i}",
        "answer_aliases": [f"W. {i}"],
        "answerable": True,
        "paragraphs": [
            {"idx": n, "title": title, "paragraph_text": text, "is_supporting": n < 2}
            for n, (title, text) in enumerate(
                [
                    ("Band", f"Song {i} is by W."),
                    ("Band", f"W is Writer {i}."),
                    ("Noise", "Nothing here."),
                ]
            )
        ],
        "question_decomposition": [
            {"id": n, "question": question, "answer": answer, "paragraph_support_idx": n}
            for n, (question, answer) in enumerate(
                [(f"song {i} >> by", "W"), ("#1 >> name", f"Writer {i}")]
            )
        ],
    }
    for i in range(10)
]
CUSTOM = [
    {"question": "Where is A?", "answer": "B", "context": [{"title": "A", "text": "A is in B."}]},
    {
        "id": "mine",
        "question": "Where is C?",
        "answers": ["D", "d-town"],
        "type": "single_hop",
        "context": [{"id": "p7", "title": "C", "sentences": ["C is old.", "C is in D."]}],
        "support": [["C", 1]],
        "gold": ["p7"],
    },
]
