// Charts over time. The library that draws them (uPlot) is loaded when the first chart is shown.

import { useEffect, useRef, useState } from 'preact/hooks';
import { html } from './html.js';
import { countText, localText } from './format.js';

let library;
const load = () => (library ??= import('uplot').then((m) => m.default));

const height = 132; // px
const day = 86_400; // s
const scheme = matchMedia('(prefers-color-scheme: dark)');

/**
 * series: [name, values, look, own]. x: seconds. value formats a number. own: formats the numbers of a series with another
 * unit, which has an axis on the right and is drawn as bars. note: a text after the title.
 */
export function Chart({ title, note, x, series, value = countText }) {
  const at = useRef();
  const plot = useRef(null);
  const [dark, setDark] = useState(scheme.matches);
  const data = [x, ...series.map((s) => s[1])];
  const now = useRef();
  now.current = data;
  useEffect(() => {
    const changed = () => setDark(scheme.matches);
    scheme.addEventListener('change', changed);
    return () => scheme.removeEventListener('change', changed);
  }, []);
  useEffect(() => {
    let gone = false;
    let observer;
    load().then((UPlot) => {
      if (gone || !at.current) return;
      plot.current = new UPlot(options(UPlot, series, value, at.current), now.current, at.current);
      observer = new ResizeObserver(([e]) => plot.current?.setSize({ width: e.contentRect.width, height })); // at is null once the chart is gone
      observer.observe(at.current);
    }, () => { library = undefined; }); // the console was replaced by another release: the text above the chart remains
    return () => {
      gone = true;
      observer?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [dark]);
  useEffect(() => { plot.current?.setData(now.current); }, [x.join(), ...series.map((s) => s[1].join())]);
  const last = (values) => values.findLast((v) => v != null);
  return html`<figure class="chart"><figcaption><b>${title}</b> ${note && html`<span class="quiet">${note}</span>`}${series.map(([name, values, look, own]) => html`<span key=${name} class=${`key is-${look}`}>${name}${last(values) != null && ` ${(own ?? value)(last(values))}`}</span>`)}</figcaption>
    <div ref=${at} role="img" aria-label=${`${title}, ${series.map(([name, values, , own]) => `${name}: at most ${(own ?? value)(Math.max(0, ...values.filter((v) => v != null)))}`).join('; ')}`}></div></figure>`;
}

/** span is the time that is shown; around a single sample, some minutes. */
const span = (_, min, max) => (max > min ? [min, max] : [min - 300, max + 60]);

/** alone returns the points of a series without a neighbour: no line shows them. */
const alone = (plot, i) => plot.data[i].flatMap((v, at, all) => (v != null && all[at - 1] == null && all[at + 1] == null ? [at] : []));

function options(UPlot, series, value, at) {
  const style = getComputedStyle(at);
  const colour = (name) => style.getPropertyValue(name).trim();
  const resolved = (name) => { // light-dark() is resolved in a property of an element, not in a canvas
    at.style.color = `var(${name})`;
    const c = getComputedStyle(at).color;
    at.style.color = '';
    return c || colour(name);
  };
  const quiet = resolved('--quiet');
  const grid = { stroke: resolved('--line'), width: 1 };
  const axis = { stroke: quiet, grid, ticks: { show: false }, font: '11px system-ui, sans-serif', size: 24 };
  const range = (_, min, max) => [0, Math.max(1, max * 1.1)];
  const own = series.find((s) => s[3])?.[3];
  const ticks = (text) => (_, vs) => vs.map((v) => (text === countText && !Number.isInteger(v) ? '' : text(v)));
  const bars = UPlot.paths.bars({ size: [0.7, 6] });
  return {
    width: at.clientWidth, height, legend: { show: false }, cursor: { y: false, points: { size: 6 } }, padding: [8, 4, 0, 0],
    axes: [{ ...axis, space: 70, values: (_, ts, _axis, _space, step) => ts.map((t) => localText(t * 1000).slice(...(step < day ? [11, 16] : [5, 10]))) }, { ...axis, size: 52, space: 30, values: ticks(value) },
      ...(own ? [{ ...axis, scale: 'own', side: 1, grid: { show: false }, size: 36, space: 30, values: ticks(own) }] : [])],
    scales: { x: { range: span }, y: { range }, ...(own && { own: { range } }) },
    series: [{}, ...series.map(([name, , look, bar]) => ({ label: name, stroke: resolved(`--${look}`), width: 1.5, points: { show: false, filter: alone }, ...(bar && { scale: 'own', paths: bars, fill: resolved(`--${look}`), width: 0 }) }))],
  };
}
