"""Lanes that run on a deployment elsewhere: vLLM, or any server that speaks OpenAI's protocol."""
