// Answers of the API that stay fresh while the page is visible.

import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Problem, askText, authorization, root, token, withQuery } from './api.js';
import { parse } from './json.js';
import { readEvents } from './sse.js';

/** When the last answer came; 0: none yet, for this screen. */
export const asOf = signal(0);

/** The problem that makes the page ask for a token; null: none. */
export const tokenProblem = signal(null);
export const hasToken = signal(Boolean(token.get()));
let tokenGiven = [];

/** Waits until a token was given. */
function askToken(problem) {
  tokenProblem.value = problem;
  return new Promise((resolve) => { tokenGiven.push(resolve); });
}

/** Continues with a token. */
export function giveToken(text) {
  token.set(text);
  hasToken.value = true;
  tokenProblem.value = null;
  for (const resolve of tokenGiven.splice(0)) resolve();
  changes.restart();
}

/** Forgets the token and asks all answers again. */
export function forgetToken() {
  token.forget();
  hasToken.value = false;
  changes.restart();
  refreshAll();
}

/** Runs a request. If the console wants a token, asks for one and runs it again. */
export async function withToken(request, signal) {
  for (;;) {
    const used = token.get();
    try {
      return await request();
    } catch (e) {
      // 429: too many invalid tokens came from this address; a valid one is accepted.
      if (e.status !== 401 && e.status !== 429 || signal?.aborted) throw e;
      if (used === token.get()) await askToken(e); // else it was given meanwhile
    }
  }
}

const askers = new Set();

/** Asks all answers on the screen again, now. */
export function refreshAll() {
  for (const a of askers) a.poke();
}

/** Returns when the page is visible. */
function looking(signal) {
  if (!document.hidden || signal.aborted) return undefined;
  return new Promise((resolve) => {
    document.addEventListener('visibilitychange', resolve, { once: true, signal });
    signal.addEventListener('abort', resolve, { once: true });
  });
}

/** Whether a change concerns a task: for useAnswer. */
export const onTask = (id) => (c) => c.more || c.tasks.includes(id);

/**
 * The answer to a GET request, asked again after changes while the page is visible: {data, problem, absent, refresh}. An
 * answer with the same text keeps the same data, so that nothing is drawn again. path null: ask nothing.
 *
 * on: the names of the changes (GET /changes) after which it is asked again, or a function of a change that says whether
 * it is. Without on, and while there is no stream of changes, it is asked again every some ms; with it, at most as often, or
 * once in pace ms.
 * aging: ms after which it is asked again without a change, since time changes it.
 * optional: a console that lacks it answers 404, which sets absent. once: not asked again after it came.
 * more: {query(data), join(data, came)}: later requests have that query, and their answer is joined to the data; null
 * says that it doesn't fit, and all is asked again.
 */
export function useAnswer(path, query = {}, { every = 2000, optional = false, once = false, on, pace, aging, more } = {}) {
  const target = path && withQuery(path, query);
  const [state, setState] = useState({});
  const asker = useRef();
  const options = { every, on, pace, aging };
  if (asker.current) Object.assign(asker.current, options);
  useEffect(() => {
    setState({});
    if (!target) return undefined;
    const stop = new AbortController();
    const mine = new Asker(options, stop.signal);
    asker.current = mine;
    askers.add(mine);
    keepFresh(mine, target, { optional, once, more, setState, signal: stop.signal }).finally(() => askers.delete(mine));
    return () => {
      stop.abort();
      askers.delete(mine);
      changes.release();
    };
  }, [target]);
  const mine = state.target === target ? state : {};
  return { ...mine, refresh: () => asker.current?.poke() };
}

/** Whether each part of the screen has had its first answer. */
export const allAnswered = () => [...askers].every((a) => a.answered);

/** When an answer is asked again. */
class Asker {
  poked = false; // ask again now
  stale = false; // it may have changed
  failed = false; // the last request did
  answered = false; // with an answer or a problem
  asked = 0;
  wake = () => {};

  constructor(options, signal) {
    Object.assign(this, options);
    this.signal = signal;
    signal.addEventListener('abort', () => this.wake(), { once: true });
  }

  poke() {
    this.poked = true;
    this.wake();
  }

  /** Takes note of a change; null: of any. */
  changed(change) {
    if (!this.on || change && !this.concerns(change)) return;
    this.stale = true;
    this.wake();
  }

  concerns(change) {
    if (change.what.includes('index')) return true;
    return typeof this.on === 'function' ? this.on(change) : this.on.some((name) => change.what.includes(name));
  }

  /** Returns when it is to be asked again. */
  async again() {
    while (!this.signal.aborted && !this.poked) {
      await looking(this.signal);
      let wait = this.every;
      if (this.on && changes.open && !this.failed) wait = this.stale ? this.pace ?? wait : this.aging ?? Infinity;
      const left = this.asked + wait - Date.now();
      if (left <= 0 || this.poked) return;
      await new Promise((resolve) => {
        const timer = left === Infinity ? 0 : setTimeout(resolve, left);
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }
}

async function keepFresh(asker, target, { optional, once, more, setState, signal }) {
  let text = null;
  let data;
  while (!signal.aborted) {
    const whole = !data || !more;
    asker.poked = asker.stale = false; // changes during the request make it stale
    asker.asked = Date.now();
    try {
      const came = await withToken(() => askText(whole ? target : withQuery(target, more.query(data)), signal), signal);
      if (signal.aborted) return;
      asOf.value = Date.now();
      asker.failed = false;
      asker.answered = true;
      if (asker.on) changes.need();
      if (!whole) {
        const joined = more.join(data, parse(came));
        if (!joined) asker.poke();
        else if (joined !== data) setState({ target, data: joined });
        else setState((s) => (s.problem ? { target, data } : s));
        data = joined;
      } else if (came !== text) {
        text = came;
        data = parse(came);
        setState({ target, data });
      } else setState((s) => (s.problem ? { target, data } : s));
      if (once) return;
    } catch (e) {
      if (signal.aborted) return;
      asker.answered = true;
      if (optional && e.status === 404) {
        setState({ target, absent: true });
        return;
      }
      asker.failed = true;
      setState({ target, data, problem: e.message });
      text = null;
      if (!(e instanceof Problem)) throw e; // a fault of this page
    }
    await asker.again();
  }
}

const unneededFor = 1000; // ms; longer than the change of a screen takes

/** The stream of changes. It is open while an answer on the screen depends on it. */
const changes = {
  open: false,
  stop: null,
  timer: 0,
  need() {
    clearTimeout(this.timer);
    this.stop ??= follow('/changes', (_, type, data) => {
      if (type === 'beat') asOf.value = Date.now(); // what is shown is what there is
      else for (const a of askers) a.changed(JSON.parse(data));
    }, { opened: () => this.set(true), lost: () => this.set(false) });
  },
  /** Closes it, unless it is needed again soon. */
  release() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { if (![...askers].some((a) => a.on)) this.close(); }, unneededFor);
  },
  close() {
    this.stop?.();
    this.stop = null;
    this.open = false;
  },
  restart() {
    this.close();
    for (const a of askers) a.changed(null); // an answer needs it again
  },
  set(open) {
    this.open = open;
    for (const a of askers) a.changed(null); // what changed before isn't in the stream
  },
};

let worker; // of all tabs; null: this browser has none

function sharedWorker() {
  if (worker === undefined) {
    const at = document.querySelector('link[rel=x-stream-worker]')?.href;
    try {
      worker = new SharedWorker(at, { type: 'module', name: 'waybill' });
      worker.port.start();
    } catch {
      worker = null;
    }
  }
  return worker;
}

const followAgain = 3000; // ms

/**
 * Follows a stream of the API while the page is visible: came(id, type, data) for each event. Reconnects after the last
 * one if the stream can resume. Tabs that follow the same stream share it (stream-worker.js). opened and lost are called
 * when the stream begins, and when it breaks or the page is hidden. Returns a function that stops it.
 */
export function follow(path, came, { resumes = false, opened = () => {}, lost = () => {} } = {}) {
  let stopped = false;
  let timer;
  let last = '';
  let local = null; // without a shared worker
  const port = sharedWorker()?.port;
  const url = new URL(root + path, document.baseURI).href;
  const again = () => {
    lost();
    clearTimeout(timer);
    timer = setTimeout(begin, followAgain);
  };
  const take = (id, type, data) => {
    if (resumes) last = id;
    came(id, type, data);
  };
  const told = ({ data: d }) => {
    if (stopped || d.url !== url) return;
    if (d.open) opened();
    else if (d.failed) again();
    else take(d.id, d.type, d.data);
  };
  function begin() {
    if (stopped || document.hidden) return;
    if (port) {
      port.postMessage({ url, headers: authorization(), last });
      return;
    }
    local?.abort();
    local = new AbortController();
    const { signal } = local;
    readEvents(url, authorization(), last, opened, take, signal).then(again, () => { if (!signal.aborted) again(); });
  }
  function end() {
    clearTimeout(timer);
    port?.postMessage({ url, stop: true });
    local?.abort();
  }
  const looked = () => {
    if (!document.hidden) begin();
    else {
      end();
      lost();
    }
  };
  port?.addEventListener('message', told);
  document.addEventListener('visibilitychange', looked);
  window.addEventListener('pagehide', end);
  begin();
  return () => {
    stopped = true;
    end();
    port?.removeEventListener('message', told);
    document.removeEventListener('visibilitychange', looked);
    window.removeEventListener('pagehide', end);
  };
}
