# What rpmctl does, from logging in to changing the configuration, with nothing but its wheel. The
# test sets URL, KEY, SECRET, ROOT_KEY, ROOT_SECRET, IMAGE, PYTHON, LAST, and SHARED, a folder that
# tasks see as /volumes/shared.
PS4="+ \$(date +%T) "
set -eux

# Run a command that ends with this code.
expect() {
    wanted=$1 code=0
    shift
    "$@" || code=$?
    test "$code" = "$wanted"
}

field() {
    rpmctl show "$1" --json | python -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$2"
}

RPM_SECRET=$SECRET rpmctl login "$URL" --key "$KEY"
rpmctl whoami | grep "alice at $URL"
enqueue="enqueue --queue team-work --image $IMAGE"

# A task with its exit code.
expect 7 rpmctl run -q team-work -i "$IMAGE" -- /bin/sh -c 'echo seven; exit 7' > run.txt
grep -x seven run.txt

# An array: elements 3, 7 and 11 fail while a file is missing, and then these alone run again.
cat > sweep.sh <<'END'
#!/bin/sh
#RPM --name sweep --volume shared
echo "$RPM_ARRAY_INDEX of $RPM_ARRAY_SIZE" >> /volumes/shared/journal
case $RPM_ARRAY_INDEX in 3|7|11) test -e /volumes/shared/fixed ;; esac
END
expect 1 rpmctl $enqueue --array "0-$LAST%8" --wait sweep.sh > array.txt
array=$(head -n 1 array.txt)
size=$((LAST + 1))
test "$(sort -u "$SHARED/journal" | wc -l)" = "$size"
test "$(field "$array" state_detail)" = "3 of $size elements failed"
touch "$SHARED/fixed"
: > "$SHARED/journal"
expect 0 rpmctl again --wait "$array"
sort -n "$SHARED/journal" > again.txt
printf "%s of $size\n" 3 7 11 | diff - again.txt

# A chain, and what can never run because of it.
first=$(rpmctl $enqueue --name first --hold -- sleep 0)
second=$(rpmctl $enqueue --name second --after "$first" -- /bin/sh -c 'exit 4')
third=$(rpmctl $enqueue --name third --after "$second:failed" -- echo third)
never=$(rpmctl $enqueue --name never --after "$second" -- echo never)
rpmctl explain "$second" | grep first
rpmctl release "$first"
expect 0 rpmctl $enqueue --after "$third" --wait -- echo last
test "$(field "$second" exit_code)" = 4
test "$(field "$never" state)" = rejected
test "$(rpmctl logs "$third")" = third

# Cancelling by filter.
for name in a b c; do rpmctl $enqueue --name "late-$name" --tag late --hold -- true; done
rpmctl cancel --tag late --yes | grep -c aborted | grep -x 3
rpmctl list --state queued | diff - /dev/null

# Functions: a result, and an exception.
cat > functions.py <<'END'
import operator, os
from rpm_client import Client, TaskError

fields = {"queue": "team-work", "image": os.environ["IMAGE"], "python": os.environ["PYTHON"]}
fields["volumes"] = ["python", "system"]
with Client(os.environ["URL"], key=os.environ["KEY"], secret=os.environ["SECRET"]) as client:
    fine = client.submit(sorted, [3, 1, 2], kwargs={"reverse": True}, **fields)
    bad = client.submit(operator.truediv, 1, 0, **fields)
    assert fine.result(120) == [3, 2, 1]
    try:
        bad.result(120)
    except TaskError as error:
        assert "ZeroDivisionError: division by zero" in str(error), error
        assert "Traceback" in error.traceback_text
    else:
        raise AssertionError("no exception")
END
python functions.py

# The configuration as a file.
RPM_SECRET=$ROOT_SECRET rpmctl --profile root login "$URL" --key "$ROOT_KEY"
export RPM_PROFILE=root
rpmctl config export -o live.yaml
expect 0 rpmctl config diff --exit-code live.yaml
sed 's/max_priority: 0/max_priority: 5/' live.yaml > edited.yaml
expect 1 diff live.yaml edited.yaml
expect 4 rpmctl config diff --exit-code edited.yaml
rpmctl config apply edited.yaml --note "More room" | grep Applied
rpmctl config apply edited.yaml | grep -x "Nothing changed."
rpmctl config export | diff - edited.yaml
rpmctl logout
