// The pages' frame: which page is shown, and the key.
import { h, render } from './vendor/preact.js';
import { showKey } from './key_dialog.js';

const main = document.getElementById('main');
const PAGES = {
  chat: async () => (await import('./chat/chat_page.js')).ChatPage,
  control: async () => (await import('./control/control_page.js')).ControlPage,
};
let shown = null;
let wanted = null;

// Anybody may make a link to this page.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function show() {
  const [name, ...rest] = location.hash.slice(1).split('/');
  const page = Object.hasOwn(PAGES, name) ? name : 'chat';
  for (const link of document.querySelectorAll('[data-page]')) {
    if (link.dataset.page === page) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = page === 'chat' ? 'Chat – Greenroom' : 'Control room – Greenroom';
  wanted = page;
  let Page;
  try {
    Page = await PAGES[page]();
  } catch {
    document.getElementById('status').textContent = 'The server does not answer: this page is not loaded yet.';
    return;
  }
  if (wanted !== page) return; // another was asked for meanwhile
  if (shown !== page) {
    render(null, main);
    main.replaceChildren();
  }
  shown = page;
  render(h(Page, { path: rest.map(decoded) }), main);
}

document.getElementById('key').onclick = showKey;
document.querySelector('.skip').onclick = (event) => {
  event.preventDefault(); // the part behind # is the page
  main.focus();
};
window.addEventListener('hashchange', show);
// The other page too, for a time when the server does not answer.
show().then(() => setTimeout(() => Object.values(PAGES).forEach((load) => load().catch(() => {})), 1000));
