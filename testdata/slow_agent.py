"""Runs docs/examples/agent.py as it is, before a service that can be slow:

    slow_agent.py AGENT LEDGER [flags of the agent]

Each charge is noted in the file LEDGER, and not done while LEDGER.slow exists. The
group's session is shortened, or a killed member would be waited for 45 s.
"""
import confluent_kafka, os, sys, time

path, ledger = sys.argv[1:3]
sys.argv = [path] + sys.argv[3:]
head, main = open(path).read().split('\nif __name__ == "__main__":\n')

consumer = confluent_kafka.Consumer
confluent_kafka.Consumer = lambda settings: consumer({**settings, "session.timeout.ms": 6000, "heartbeat.interval.ms": 500})


def note(what, key):
    with open(ledger, "a") as f:
        f.write("%s %d %s\n" % (what, os.getpid(), key))


def charge(key, body):
    note("begun", key)
    while os.path.exists(ledger + ".slow"):
        time.sleep(0.02)
    output = service(key, body)
    note("done", key)
    return output


agent = {"__name__": "agent"}
exec(compile(head, path, "exec"), agent)
service, agent["OPERATIONS"]["charge"] = agent["OPERATIONS"]["charge"], charge
exec(compile("if True:\n" + main, path, "exec"), agent)
