"""How the builtin pair was made: ``python -m specdemo.training --corpus FOLDER``.

Stages, each resumable and each writing into one work folder:
tokenizer -> target (pretraining, grown in depth) -> rollouts (text the target itself writes)
-> draft (pretraining, then distillation from the target) -> export (shards and model card).
"""
