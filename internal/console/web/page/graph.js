// The graph of a workflow. Its coordinates come from the console; this paints them.

import { html } from './html.js';
import { Icon, lookOf, wordOf } from './parts.js';

/** A smooth line from left to right through points. */
function pathOf(points) {
  return points.map(([x, y], i) => {
    if (i === 0) return `M${x} ${y}`;
    const [px, py] = points[i - 1];
    const mid = (px + x) / 2;
    return `C${mid} ${py} ${mid} ${y} ${x} ${y}`;
  }).join('');
}

const cut = (text, chars) => (text.length > chars ? `${text.slice(0, chars - 1)}…` : text);
const worst = ['error', 'step error', 'checking', 'failed', 'undoing', 'running', 'waiting', 'undone', 'cancelled', 'pending', 'caught', 'skipped', 'completed'];

/**
 * graph: {steps, layout} of the API. stateOf(id): the state of a step; undefined: none is shown. notesOf(id): a text below the name.
 * choose(id) is called for a step; chosen is one.
 */
export function Graph({ graph, stateOf = () => undefined, notesOf, choose, chosen, label }) {
  const { steps, layout } = graph;
  const byID = new Map(steps.map((s) => [s.id, s]));
  const painted = layout.boxes.map((n) => {
    const states = n.steps.map(stateOf).filter(Boolean);
    return { n, state: worst.find((s) => states.includes(s)) ?? states[0], counts: states };
  });
  return html`<div class="graph" tabindex="0" role="region" aria-label=${label ?? 'Graph of the steps'}><svg width=${layout.width} height=${layout.height} viewBox=${`0 0 ${layout.width} ${layout.height}`}>
    ${layout.edges.map((e, i) => html`<path key=${`e${i}`} class=${`edge${painted[e.from].state && painted[e.to].state && painted[e.to].state !== 'pending' ? ' taken' : ''}`} d=${pathOf(e.points)} />`)}
    ${painted.map(({ n, state, counts }) => html`<${Node} key=${n.steps[0]} n=${n} step=${byID.get(n.steps[0])} state=${state} counts=${counts} notes=${notesOf} choose=${choose} chosen=${n.steps.includes(chosen)} />`)}
  </svg></div>`;
}

function Node({ n, step, state, counts, notes, choose, chosen }) {
  const folded = n.steps.length > 1;
  const name = folded ? `${n.steps.length} steps` : step.id;
  const under = folded ? summaryOf(counts) : notes?.(step.id) ?? step.what ?? step.kind;
  const chars = Math.floor((n.width - 46) / 6.6);
  const title = folded ? `${name}: ${n.steps.join(', ')}` : [step.id, step.what, state && wordOf(state), step.when && `when ${step.when}`, ...(step.notes ?? [])].filter(Boolean).join('\n');
  const pick = () => choose?.(n.steps[0]);
  const keys = (e) => {
    if (e.key !== 'Enter' && e.key !== ' ') return;
    e.preventDefault();
    pick();
  };
  return html`<g class=${`node is-${state ? lookOf(state) : 'none'}${chosen ? ' chosen' : ''}${folded ? ' folded' : ''}`} transform=${`translate(${n.x} ${n.y})`} role=${choose ? 'button' : 'img'} tabindex=${choose ? 0 : undefined} onClick=${pick} onKeyDown=${keys}>
    <title>${title}</title><rect width=${n.width} height=${n.height} rx="7" />
    <g class="mark" transform=${`translate(10 ${n.height / 2 - 8})`}>${html`<${Mark} look=${state ? lookOf(state) : step?.pivot ? 'held' : 'pending'} />`}</g>
    <text x="34" y=${n.height / 2 - 3} class="title">${cut(name, chars)}</text><text x="34" y=${n.height / 2 + 13} class="under">${cut(under ?? '', chars + 2)}</text>
  </g>`;
}

const Mark = ({ look }) => html`<svg width="16" height="16" x="0" y="0" viewBox="0 0 16 16" class="icon"><${Path} name=${look} /></svg>`;
const Path = ({ name }) => Icon({ name }).props.children;

function summaryOf(states) {
  const n = new Map();
  for (const s of states) n.set(s, (n.get(s) ?? 0) + 1);
  return [...n].map(([s, k]) => `${k} ${wordOf(s)}`).join(', ');
}
