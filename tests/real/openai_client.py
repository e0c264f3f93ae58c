"""Uses a bot through the official client, and prints what came back as one JSON object.

Arguments: the base URL up to /v1, the model, and the text to send. The API key is the one line on stdin.
"""
import json
import sys

import openai

base_url, model, text = sys.argv[1:4]
client = openai.OpenAI(base_url=base_url, api_key=sys.stdin.readline().strip(), max_retries=0, timeout=90)
messages = [{"role": "user", "content": text}]

seen = {}
try:
    seen["models"] = [entry.id for entry in client.models.list()]
    plain = client.chat.completions.create(model=model, messages=messages)
    seen["plain"] = plain.choices[0].message.content
    words = []
    for chunk in client.chat.completions.create(model=model, messages=messages, stream=True):
        # Progress frames of the gateway's tools arrive as chunks without choices.
        if chunk.choices and chunk.choices[0].delta.content:
            words.append(chunk.choices[0].delta.content)
    seen["streamed"] = "".join(words).strip()
    seen["response"] = client.responses.create(model=model, input=text).output_text
except openai.APIStatusError as error:
    seen["refused"] = {"status": error.status_code, "error": type(error).__name__, "code": error.code}
print(json.dumps(seen))
