"""Makes, streams, finds and deletes responses through the official client, and prints what came back as one JSON object.

Arguments: the base URL up to /v1 and the text to send. On stdin: the owner's API key, and on the next line another's.
"""
import json
import sys

import openai

base_url, text = sys.argv[1:3]


def client():
    return openai.OpenAI(base_url=base_url, api_key=sys.stdin.readline().strip(), max_retries=0, timeout=90)


owner, other = client(), client()


def status(call):
    try:
        call()
        return 200
    except openai.APIStatusError as error:
        return error.status_code


seen = {}
created = owner.responses.create(model="any", input=text)
seen["created"] = created.output_text
words, last = [], None
for event in owner.responses.create(model="any", input=text, stream=True):
    if event.type == "response.output_text.delta":
        words.append(event.delta)
    last = event.type
seen["streamed"] = "".join(words).strip()
seen["last_event"] = last
seen["retrieved"] = owner.responses.retrieve(created.id).output_text
seen["by_other"] = status(lambda: other.responses.retrieve(created.id))
seen["deleted_by_other"] = status(lambda: other.responses.delete(created.id))
seen["deleted"] = status(lambda: owner.responses.delete(created.id)) == 200
seen["after"] = status(lambda: owner.responses.retrieve(created.id))
print(json.dumps(seen))
