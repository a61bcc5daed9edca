// Where conversations are kept: in the server's store if it lists them, else in this tab.
import { ApiError, get, post, remove } from '../api.js';
import { Conversation } from './conversation.js';
import { entriesOf, itemsOf } from './items.js';

const PATH = 'v1/conversations';
const PAGE = 30;
const TAB = 'greenroom-conversations';
const TAB_CHARACTERS = 2_000_000;
const CHUNK = 500; // of 512 characters that a value of metadata may have
const CHUNKS = 12;
const AT_ONCE = 20;

const address = (id) => `${PATH}/${encodeURIComponent(id)}`;

function metadataOf({ title, model, options }) {
  const metadata = { title: title.slice(0, CHUNK), model: model.slice(0, CHUNK) };
  const settings = JSON.stringify(options);
  // Longer settings stay with the tab: half of a schema would be worse than none.
  if (settings.length <= CHUNK * CHUNKS) {
    for (let at = 0; at < settings.length; at += CHUNK) metadata[`settings_${at / CHUNK}`] = settings.slice(at, at + CHUNK);
  }
  return metadata;
}

function settingsOf(metadata) {
  let written = '';
  for (let index = 0; metadata[`settings_${index}`]; index += 1) written += metadata[`settings_${index}`];
  try {
    return JSON.parse(written || '{}');
  } catch {
    return {}; // another client's
  }
}

class StoredRecords {
  place = 'Kept by the server';

  async list(query, after) {
    const asked = new URLSearchParams({ limit: PAGE });
    if (query) asked.set('query', query);
    if (after) asked.set('after', after);
    const { data, has_more: more } = await get(`${PATH}?${asked}`);
    return { more, found: data.map(({ id, metadata }) => ({ id, title: metadata?.title || 'Untitled' })) };
  }

  async open(id) {
    const { metadata } = await get(address(id));
    const items = [];
    for (let after = ''; ;) {
      const page = await get(`${address(id)}/items?order=asc&limit=100${after && `&after=${encodeURIComponent(after)}`}`);
      items.push(...page.data);
      if (!page.has_more) break;
      after = page.last_id;
    }
    const found = new Conversation(metadata.model || '', settingsOf(metadata), entriesOf(items));
    return Object.assign(found, { id, title: metadata.title || 'Untitled' });
  }

  async save(conversation) {
    const metadata = metadataOf(conversation);
    if (conversation.id === null) conversation.id = (await post(PATH, { metadata })).id;
    else await post(address(conversation.id), { metadata });
    const items = `${address(conversation.id)}/items`;
    for (const gone of conversation.dropped.splice(0)) await remove(`${items}/${encodeURIComponent(gone)}`);
    const unsaved = conversation.entries.filter((entry) => !entry.ids.length);
    const pending = unsaved.flatMap((entry) => itemsOf(entry).map((item) => ({ entry, item })));
    while (pending.length) {
      const batch = pending.splice(0, AT_ONCE);
      const { data } = await post(items, { items: batch.map(({ item }) => item) });
      batch.forEach(({ entry }, index) => entry.ids.push(data[index].id));
    }
  }

  async rename(id, title) {
    const { metadata } = await get(address(id));
    await post(address(id), { metadata: { ...metadata, title: title.slice(0, CHUNK) } });
  }

  remove(id) {
    return remove(address(id));
  }
}

class TabRecords {
  place = 'Kept in this tab only: the server lists no conversations';

  constructor() {
    try {
      this.kept = JSON.parse(sessionStorage.getItem(TAB) || '[]');
    } catch {
      this.kept = [];
    }
  }

  async list(query) {
    const words = query.toLowerCase();
    return { more: false, found: this.kept.filter(({ title }) => title.toLowerCase().includes(words)) };
  }

  async open(id) {
    const { title, model, options, items } = this.kept.find((kept) => kept.id === id) || {};
    if (!items) throw new ApiError(404, 'not_found', 'This tab has no such conversation.');
    return Object.assign(new Conversation(model, options, entriesOf(items)), { id, title });
  }

  async save(conversation) {
    const { title, model, options, entries } = conversation;
    conversation.id ??= `tab_${Date.now().toString(36)}`;
    const items = entries.flatMap(itemsOf);
    const others = this.kept.filter((kept) => kept.id !== conversation.id);
    this.kept = [{ id: conversation.id, title, model, options, items }, ...others];
    this.write();
  }

  async rename(id, title) {
    this.kept = this.kept.map((kept) => (kept.id === id ? { ...kept, title } : kept));
    this.write();
  }

  async remove(id) {
    this.kept = this.kept.filter((kept) => kept.id !== id);
    this.write();
  }

  // For a reload of the tab; what is too long for its storage lasts until then.
  write() {
    const written = JSON.stringify(this.kept);
    if (written.length < TAB_CHARACTERS) sessionStorage.setItem(TAB, written);
  }
}

export async function findRecords() {
  try {
    await get(`${PATH}?limit=1`);
    return new StoredRecords();
  } catch (error) {
    if (error instanceof ApiError) return new TabRecords();
    throw error;
  }
}
