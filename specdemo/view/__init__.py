"""From traces to what is shown; no Gradio."""
