// The list of conversations: found, opened, renamed, deleted.
import { html, useEffect, useRef, useState } from '../vendor/preact.js';

export function Sidebar({ records, version, current, keeping, open, began }) {
  const [query, search] = useState('');
  const [listed, list] = useState({ found: [], more: false, last: '' });
  const [problem, setProblem] = useState('');

  const latest = useRef(0);
  const load = async (after = '') => {
    latest.current += 1;
    const own = latest.current; // a slow answer to an earlier search is late
    try {
      const page = await records.list(query, after);
      if (own === latest.current) list((before) => ({ ...page, found: after ? [...before.found, ...page.found] : page.found }));
      setProblem('');
    } catch (error) {
      setProblem(error.message);
    }
  };
  useEffect(() => {
    const later = setTimeout(load, query ? 250 : 0);
    return () => clearTimeout(later);
  }, [records, version, query]);

  return html`<aside aria-label="Conversations">
    <button type="button" class="main" onClick=${began}>New chat</button>
    <label><span class="seen-by-readers">Search conversations</span>
      <input type="search" placeholder="Search" value=${query} onInput=${(event) => search(event.target.value)} /></label>
    <ul class="list">${listed.found.map(({ id, title }) => html`<li key=${id}>
      <a href=${`#chat/${encodeURIComponent(id)}`} aria-current=${id === current ? 'true' : null} title=${title}
        onClick=${() => open(id)}>${title}</a></li>`)}</ul>
    ${listed.more && html`<button type="button" onClick=${() => load(listed.last)}>More</button>`}
    <p class="faint">${problem || (keeping ? 'Saves …' : records.place)}</p>
  </aside>`;
}
