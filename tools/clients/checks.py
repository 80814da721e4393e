"""Common parts of the scripts in this folder: the questions, and functions that report checks."""

KEY = "a-key-of-the-check"
QUESTION = [{"role": "user", "content": "What is 7 plus 5?"}]
ANSWER = "7 plus 5 is 12."
LAMP = {
    "type": "object",
    "properties": {"on": {"type": "boolean"}},
    "required": ["on"],
    "additionalProperties": False,
}

failures = []


def check(name, found, expected=True):
    ok = found == expected
    print(f"{'ok  ' if ok else 'FAIL'}  {name}" + ("" if ok else f": found {found!r}, expected {expected!r}"))
    if not ok:
        failures.append(name)


def refused(name, error, call):
    try:
        call()
    except error as raised:
        check(name, True)
        return raised
    check(name, "accepted", f"{error.__name__}")
    return None
