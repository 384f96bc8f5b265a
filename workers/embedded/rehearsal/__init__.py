"""Rehearsal models: rules in the place of models, so that everything that asks a model can be seen without a key.

They speak the protocols of the real ones (System One, chat completions, embeddings), always answer the same request alike,
and say what they are: every model is named `rehearsal-…`, in the request and in the reply. How well they answer says nothing
about any model.
"""

JUDGE = "rehearsal-judge"
WRITER = "rehearsal-writer"
EMBEDDER = "rehearsal-embedder"
MODELS = {
    JUDGE: "Decisions by shared words. Rules, no model.",
    WRITER: "Completions by rule. Rules, no model.",
    EMBEDDER: "Hashed bags of words. Rules, no model.",
}
