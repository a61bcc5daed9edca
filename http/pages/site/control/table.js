// A table that scrolls by itself on narrow screens; cells are text or nodes. Rows that come and go have `ids`: a button stays with its own.
import { html } from '../vendor/preact.js';

export function Table({ caption, heads, rows, ids = [], empty = 'Nothing yet.' }) {
  return html`<div class="scrolls" tabindex="0" role="region" aria-label=${caption}><table>
    <caption>${caption}</caption>
    <thead><tr>${heads.map((head) => (head ? html`<th scope="col">${head}</th>` : html`<td></td>`))}</tr></thead>
    <tbody>${rows.map((cells, index) => html`<tr key=${ids[index] ?? index}>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody>
  </table>${!rows.length && html`<p class="faint">${empty}</p>`}</div>`;
}
