// Charts as SVG: a stacked bar and a line, each with its figures in words.
import { html } from '../vendor/preact.js';

// `parts`: [{label, value, kind}]; `whole`: the value of the full width.
export function StackedBar({ parts, whole, label }) {
  const total = Math.max(whole || 0, parts.reduce((sum, { value }) => sum + value, 0)) || 1;
  let from = 0;
  const pieces = parts.filter(({ value }) => value > 0).map(({ value, kind }) => {
    const piece = html`<rect class=${`kind-${kind}`} x=${100 * from} y="0" width=${Math.max(0.2, (100 * value) / total)} height="10" />`;
    from += value / total;
    return piece;
  });
  return html`<svg class="bar-chart" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect class="empty" x="0" y="0" width="100" height="10" />${pieces}</svg>`;
}

export function Legend({ parts, written }) {
  return html`<ul class="legend">${parts.map(({ label, value, kind }) => html`<li key=${label}>
    <svg viewBox="0 0 10 10" aria-hidden="true"><rect class=${`kind-${kind}`} width="10" height="10" /></svg>${label} ${written(value)}</li>`)}</ul>`;
}

export function Sparkline({ values, label }) {
  const most = Math.max(1, ...values);
  const step = 100 / Math.max(1, values.length - 1);
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${(29 - (28 * value) / most).toFixed(1)}`).join(' ');
  return html`<svg class="sparkline" viewBox="0 0 100 30" preserveAspectRatio="none" role="img" aria-label=${label}>
    <polyline points=${points} /></svg>`;
}
