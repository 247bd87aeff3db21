"""``python -m tests.wild.decoding``: are the tokens those of onnxruntime-genai's Generator, and of transformers?

Each package that the builder makes, with two prompts. Both others run in a process of their own, in the builder's
environment. The exit status is 1 if a float32 package says anything else than transformers, or any than the Generator.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import onnx_nb
from tests.wild import collection

STEPS = 32
PROMPTS = [[7 * n % 290 + 3 for n in range(count)] for count in (5, 24)]
OTHERS = """
import json, sys, torch, transformers, onnxruntime_genai as genai
folder, checkpoint, prompts, steps = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
module = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, attn_implementation="eager").float().eval()
model, replies = genai.Model(folder), []
for ids in prompts:
    options = genai.GeneratorParams(model)
    options.set_search_options(max_length=len(ids) + steps, do_sample=False)
    generator = genai.Generator(model, options)
    generator.append_tokens(ids)
    while len(generator.get_sequence(0)) < len(ids) + steps and not generator.is_done():
        generator.generate_next_token()
    with torch.no_grad():
        tokens = module.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                                 do_sample=False, max_new_tokens=steps, eos_token_id=None, pad_token_id=0)
    replies.append([[int(t) for t in generator.get_sequence(0)[len(ids):]], tokens[0, len(ids):].tolist()])
print(json.dumps(replies))
"""


def main() -> int:
    """Print a line for each package and prompt; return 1 if one differs that must not."""
    warnings.simplefilter("ignore")
    paths, _ = collection.generators()
    wrong = 0
    for path in paths:
        folder = path.parent
        files = [str(folder), str(folder.parent / "checkpoint"), json.dumps(PROMPTS), str(STEPS)]
        reply = subprocess.run(
            [collection.environment(), "-c", OTHERS, *files], capture_output=True, text=True, check=True
        )
        package = onnx_nb.load(folder)
        for prompt, (genai, torch) in zip(PROMPTS, json.loads(reply.stdout.splitlines()[-1]), strict=True):
            (ours,) = onnx_nb.decode(package, prompt, STEPS, stop=()).tokens.tolist()
            same = [sum(a == b for a, b in zip(ours, other, strict=False)) for other in (genai, torch)]
            wrong += ours[: len(genai)] != genai or (folder.name == "fp32" and ours != torch)
            line = (
                f"{folder.parent.name}/{folder.name}, {len(prompt)} tokens: {same[0]} of {len(genai)} as the Generator"
            )
            sys.stdout.write(f"{line}, {same[1]} of {len(torch)} as transformers in float32\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
