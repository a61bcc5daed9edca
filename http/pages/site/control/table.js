// A table that scrolls by itself on narrow screens; cells are text or nodes.
import { html } from '../vendor/preact.js';

export function Table({ caption, heads, rows, empty = 'Nothing yet.' }) {
  return html`<div class="scrolls" tabindex="0" role="region" aria-label=${caption}><table>
    <caption>${caption}</caption>
    <thead><tr>${heads.map((head) => (head ? html`<th scope="col">${head}</th>` : html`<td></td>`))}</tr></thead>
    <tbody>${rows.map((cells, index) => html`<tr key=${index}>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody>
  </table>${!rows.length && html`<p class="faint">${empty}</p>`}</div>`;
}
