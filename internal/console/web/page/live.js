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
}

/** Forgets the token and asks all answers again. */
export function forgetToken() {
  token.forget();
  hasToken.value = false;
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

const refreshes = new Set();

/** Asks all answers on the screen again, now. */
export function refreshAll() {
  for (const refresh of refreshes) refresh();
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

/** Returns when the page is visible. */
function looking(signal) {
  if (!document.hidden || signal.aborted) return undefined;
  return new Promise((resolve) => {
    document.addEventListener('visibilitychange', resolve, { once: true, signal });
    signal.addEventListener('abort', resolve, { once: true });
  });
}

/**
 * The answer to a GET request, asked again every some ms while the page is visible: {data, problem, absent, refresh}. An
 * answer with the same text keeps the same data, so that nothing is drawn again. path null: ask nothing. optional: a
 * console that lacks it answers 404, which sets absent. once: not asked again after it came.
 */
export function useAnswer(path, query = {}, { every = 2000, optional = false, once = false } = {}) {
  const target = path && withQuery(path, query);
  const [state, setState] = useState({});
  const pace = useRef(every);
  pace.current = every;
  const poke = useRef(() => {});
  useEffect(() => {
    setState({});
    if (!target) return undefined;
    const stop = new AbortController();
    keepFresh(target, { optional, once, pace, poke, setState, signal: stop.signal });
    const refresh = () => poke.current();
    refreshes.add(refresh);
    return () => {
      stop.abort();
      refreshes.delete(refresh);
    };
  }, [target]);
  const mine = state.target === target ? state : {};
  return { ...mine, refresh: () => poke.current() };
}

async function keepFresh(target, { optional, once, pace, poke, setState, signal }) {
  let text = null;
  let data;
  while (!signal.aborted) {
    const poked = new Promise((resolve) => { poke.current = resolve; }); // also of changes during the request
    try {
      const came = await withToken(() => askText(target, signal), signal);
      if (signal.aborted) return;
      asOf.value = Date.now();
      if (came !== text) {
        text = came;
        data = parse(came);
        setState({ target, data });
      } else setState((s) => (s.problem ? { target, data } : s));
      if (once) return;
    } catch (e) {
      if (signal.aborted) return;
      if (optional && e.status === 404) {
        setState({ target, absent: true });
        return;
      }
      setState({ target, data, problem: e.message });
      text = null;
      if (!(e instanceof Problem)) throw e; // a fault of this page
    }
    await Promise.race([poked, pause(pace.current, signal)]);
    await looking(signal);
  }
}

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
 * one. All tabs of a browser share one stream (stream-worker.js): taken(true) is called when another tab has it, and
 * taken(false) when it is this tab's again. Returns a function that stops it.
 */
export function follow(path, came, last = '', taken = () => {}) {
  let stopped = false;
  let timer;
  let lost = false; // another tab has the stream
  let local = null; // without a shared worker
  const port = sharedWorker()?.port;
  const url = new URL(root + path, document.baseURI).href;
  const again = () => {
    clearTimeout(timer);
    timer = setTimeout(begin, followAgain);
  };
  const take = (id, type, data) => {
    last = id;
    came(id, type, data);
  };
  const told = ({ data: d }) => {
    if (stopped) return;
    if (d.id) take(d.id, d.type, d.data);
    if (d.failed) again();
    if (d.taken) taken(lost = true);
  };
  function begin() {
    if (stopped || document.hidden) return;
    taken(lost = false);
    if (port) {
      port.postMessage({ url, headers: authorization(), last });
      return;
    }
    local?.abort();
    local = new AbortController();
    const { signal } = local;
    readEvents(url, authorization(), last, take, signal).then((ended) => { if (!ended) again(); }, () => { if (!signal.aborted) again(); });
  }
  function end() {
    clearTimeout(timer);
    port?.postMessage(null);
    local?.abort();
  }
  const looked = () => (document.hidden ? end() : begin());
  const focused = () => { if (lost) begin(); };
  port?.addEventListener('message', told);
  document.addEventListener('visibilitychange', looked);
  window.addEventListener('focus', focused); // this window takes the stream back from another one
  window.addEventListener('pagehide', end);
  begin();
  return () => {
    stopped = true;
    end();
    port?.removeEventListener('message', told);
    document.removeEventListener('visibilitychange', looked);
    window.removeEventListener('focus', focused);
    window.removeEventListener('pagehide', end);
  };
}
