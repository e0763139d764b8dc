// The page's frame: it shows the view that the address names, refreshes it while the page is visible, and handles problems
// and the token.

import { Problem, token } from './api.js';
import { el, fill, instant } from './dom.js';
import { alerts } from './alerts.js';
import { deadletters } from './deadletters.js';
import { overview } from './overview.js';
import { submit } from './submit.js';
import { task } from './task.js';
import { tasks } from './tasks.js';

const main = document.querySelector('main');
const freshness = document.querySelector('#freshness');
const forget = document.querySelector('#forget');

// A view exists until the address changes: {title, content, refresh}. refresh requests data and updates content; it is
// optional. follow(changed), optional, calls changed after each event and returns when there are no more. With follow,
// refresh is called after changes, and otherwise rarely.
const views = new Map(Object.entries({ '': overview, tasks, alerts, deadletters, submit }));
const refreshEvery = 2000; // ms
const refreshFollowed = 10_000; // for changes without an event, such as an agent that has left
const followAgain = 3000;

let shown = new AbortController();

function viewOf(hash) {
  const [path, query] = hash.replace(/^#?\/?/, '').split(/\?(.*)/s);
  const [name, ...rest] = path.split('/');
  const params = new URLSearchParams(query);
  if (name === 'tasks' && rest.length > 0) return task(decoded(rest.join('/')), shown.signal);
  return views.get(name)?.(params, shown.signal) ?? { title: 'Not found', content: el('p', {}, 'There is no such page.') };
}

/** Decodes a part of an address. A part that isn't encoded is returned unchanged. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function show() {
  shown.abort();
  shown = new AbortController();
  const { signal } = shown;
  const problem = el('div', { role: 'alert' });
  const view = viewOf(location.hash);
  document.title = `${view.title} - Waybill`;
  for (const a of document.querySelectorAll('nav a')) {
    const here = a.getAttribute('href') === location.hash.split('?')[0];
    if (here) a.setAttribute('aria-current', 'page'); else a.removeAttribute('aria-current');
  }
  freshness.textContent = '';
  fill(main, el('h1', {}, view.title), problem, view.content);
  if (view.refresh) await keepFresh(view, problem, signal);
}

/** Refreshes a view until another one is shown. */
async function keepFresh(view, problem, signal) {
  let changed = () => {};
  if (view.follow) keepFollowing(view, () => changed(), signal);
  while (!signal.aborted) {
    const change = new Promise((resolve) => { changed = resolve; }); // also of changes during the refresh
    await refresh(view, problem, signal);
    await Promise.race([change, pause(view.follow ? refreshFollowed : refreshEvery, signal)]);
    await looking(signal);
  }
}

async function refresh(view, problem, signal) {
  try {
    await view.refresh();
    if (signal.aborted) return;
    fill(problem);
    fill(freshness, 'as of ', instant(new Date().toISOString()));
  } catch (e) {
    if (signal.aborted) return;
    if (e.status === 401 || e.status === 429) { // 429: too many invalid tokens came from this address; a valid one is accepted
      await askToken(e, signal);
      return refresh(view, problem, signal);
    }
    fill(problem, el('p', { class: 'problem' }, e.message));
    if (!(e instanceof Problem)) throw e; // a fault of this page
  }
  forget.hidden = !token.get();
}

/** Runs a view's follow, and restarts it when the connection is lost. */
async function keepFollowing(view, changed, signal) {
  while (!signal.aborted) {
    const ended = await view.follow(changed).then(() => true, () => false);
    if (ended) return;
    await pause(followAgain, signal);
    changed(); // says what is wrong, if something is
  }
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

/** Returns when somebody looks at the page. */
function looking(signal) {
  if (!document.hidden || signal.aborted) return undefined;
  return new Promise((resolve) => {
    document.addEventListener('visibilitychange', resolve, { once: true, signal });
    signal.addEventListener('abort', resolve, { once: true });
  });
}

/** Shows a dialog that asks for a token. */
function askToken(problem, signal) {
  return new Promise((resolve) => {
    const input = el('input', { name: 'token', type: 'password', autocomplete: 'off', required: true });
    const given = () => {
      token.set(input.value.trim());
      dialog.remove();
      resolve();
    };
    const dialog = el('dialog', { oncancel: (e) => e.preventDefault(), onclose: given },
      el('form', { method: 'dialog', class: 'tall' },
        el('p', {}, token.get() ? problem.message : 'This console needs a token. The token is kept until this tab is closed.'),
        el('label', {}, 'Token', input),
        el('button', {}, 'Continue')));
    document.body.append(dialog);
    signal.addEventListener('abort', () => { dialog.remove(); resolve(); }, { once: true });
    dialog.showModal();
  });
}

forget.addEventListener('click', () => {
  token.forget();
  forget.hidden = true;
  show();
});
window.addEventListener('hashchange', show);
show();
