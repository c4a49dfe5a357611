"""How the builtin pair was made: ``python -m specdemo.training --corpus FOLDER``.

Stages, each resumable and each writing into one work folder:
tokenizer -> target (pretraining, grown in depth) -> draft (pretraining) -> lessons (what the target says about
text of its own and of the corpus) -> draft (distillation) -> export (shards and model card).
"""
