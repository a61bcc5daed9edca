// Where conversations are kept: in the server's store if it lists them, else in this tab.
import { ApiError, get, post, remove } from '../api.js';
import { Conversation, OWN } from './conversation.js';
import { entriesOf, itemsOf, lostEntry } from './items.js';

const PATH = 'v1/conversations';
const PAGE = 30;
const TAB = 'greenroom-conversations';
const TAB_CHARACTERS = 2_000_000;
const CHUNK = 500; // of 512 characters that a value of metadata may have
const CHUNKS = 12;
const AT_ONCE = 20;

const address = (id) => `${PATH}/${encodeURIComponent(id)}`;

function metadataOf({ title, model, options, partner, isSecond }) {
  const metadata = { title: title.slice(0, CHUNK), model: model.slice(0, CHUNK) };
  if (partner) metadata.compared_with = partner;
  if (isSecond) metadata.compared_as = 'second';
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
    // Another client may have written anything: the settings of this page are texts.
    return Object.fromEntries(Object.entries(JSON.parse(written || '{}') || {}).filter(([, value]) => typeof value === 'string'));
  } catch {
    return {};
  }
}

// The second of two models is found through the first.
const isHidden = ({ compared_with: partner, compared_as: place }) => Boolean(partner) && place === 'second';

const MARKS = { cancelled: 'stopped', incomplete: 'cut', failed: 'failed' };

// The last question of an opened conversation has its answer, or one that is being written, or none.
function goOn(conversation, latest) {
  const last = conversation.entries.at(-1);
  if (!last) return;
  if (last.kind === 'assistant') {
    last.state = MARKS[latest?.status] || last.state;
    if (last.state === 'failed') last.problem = 'The answer was cut off.';
  } else if (['queued', 'in_progress', 'failed'].includes(latest?.status)) conversation.follow(latest.id);
  else conversation.entries.push(lostEntry(conversation.model));
}

class StoredRecords {
  async list(query, after) {
    const asked = new URLSearchParams({ limit: PAGE });
    if (query) asked.set('query', query);
    if (after) asked.set('after', after);
    const { data, has_more: more } = await get(`${PATH}?${asked}`);
    const found = data.filter(({ metadata }) => !isHidden(metadata || {}));
    return { more, last: data.at(-1)?.id, found: found.map(({ id, metadata }) => ({ id, title: metadata?.title || 'Untitled' })) };
  }

  async open(id) {
    // Before the items: an answer that ends in between is among them.
    const { metadata, latest_response: latest } = await get(address(id));
    const items = [];
    for (let after = ''; ;) {
      const page = await get(`${address(id)}/items?order=asc&limit=100${after && `&after=${encodeURIComponent(after)}`}`);
      items.push(...page.data);
      if (!page.has_more) break;
      after = page.last_id;
    }
    const found = new Conversation(metadata.model || '', settingsOf(metadata), entriesOf(items));
    const { title = 'Untitled', compared_with: partner = null, compared_as: place } = metadata;
    Object.assign(found, { id, title, partner, isSecond: place === 'second' });
    goOn(found, latest);
    return found;
  }

  async save(conversation) {
    const metadata = metadataOf(conversation);
    if (conversation.id === null) {
      conversation.id = (await post(PATH, { metadata })).id;
      conversation.changed();
    } else await this.describe(conversation);
    conversation.described ??= JSON.stringify(metadata);
    const items = `${address(conversation.id)}/items`;
    for (const { dropped } = conversation; dropped.length; dropped.shift()) {
      await remove(`${items}/${encodeURIComponent(dropped[0])}`).catch((error) => { if (error.status !== 404) throw error; });
    }
    const unsaved = conversation.entries.filter((entry) => !entry.ids.length && entry.state !== 'running');
    const pending = unsaved.flatMap((entry) => itemsOf(entry).map((item) => ({ entry, item })));
    while (pending.length) {
      const batch = pending.splice(0, AT_ONCE);
      const { data } = await post(items, { items: batch.map(({ item }) => item) });
      batch.forEach(({ entry }, index) => entry.ids.push(data[index].id));
    }
  }

  // Keeps all but its entries, which may be growing.
  async describe(conversation) {
    const metadata = metadataOf(conversation);
    const written = JSON.stringify(metadata);
    if (conversation.described !== written) await post(address(conversation.id), { metadata });
    conversation.described = written;
  }

  async rename(id, title) {
    const { metadata } = await get(address(id));
    await post(address(id), { metadata: { ...metadata, title: title.slice(0, CHUNK) } });
  }

  remove(id) {
    return remove(`${address(id)}?responses=true`);
  }
}

class TabRecords {
  constructor() {
    try {
      this.kept = JSON.parse(sessionStorage.getItem(TAB) || '[]');
    } catch {
      this.kept = [];
    }
  }

  async list(query) {
    const words = query.toLowerCase();
    const found = this.kept.filter(({ title, partner, isSecond }) => title.toLowerCase().includes(words) && !(partner && isSecond));
    return { more: false, last: '', found };
  }

  async open(id) {
    const { title, model, options, items, partner, isSecond } = this.kept.find((kept) => kept.id === id) || {};
    if (!items) throw new ApiError(404, 'not_found', 'This tab has no such conversation.');
    const found = Object.assign(new Conversation(model, options, entriesOf(items)), { id, title, partner, isSecond });
    goOn(found, null);
    return found;
  }

  async save(conversation) {
    const { title, model, options, entries, partner, isSecond } = conversation;
    conversation.id ??= `${OWN}${crypto.getRandomValues(new Uint32Array(2)).join('_')}`;
    const items = entries.filter(({ state }) => state !== 'running').flatMap(itemsOf);
    const others = this.kept.filter((kept) => kept.id !== conversation.id);
    this.kept = [{ id: conversation.id, title, model, options, items, partner, isSecond }, ...others];
    this.write();
  }

  describe(conversation) {
    return this.save(conversation);
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

// The conversations of both places; what the server does not keep stays in the tab.
class Records {
  constructor(stored) {
    this.stored = stored;
    this.tab = new TabRecords();
    this.apart = new Map(); // conversations whose answers are written for this tab, while others are shown
    this.isStoring = stored !== null;
  }

  get place() {
    return this.isStoring ? 'Kept by the server' : 'Kept in this tab only: the server stores no conversations';
  }

  of(id) {
    return this.stored === null || id.startsWith(OWN) ? this.tab : this.stored;
  }

  async list(query, after = '') {
    const own = after ? [] : (await this.tab.list(query)).found;
    const { found, ...page } = this.stored ? await this.stored.list(query, after) : { found: [], more: false, last: '' };
    return { ...page, found: [...own, ...found] };
  }

  async open(id) {
    const apart = this.apart.get(id);
    this.apart.delete(id);
    return apart?.isAnswering ? apart : this.of(id).open(id);
  }

  leave(conversation) {
    conversation.leave();
    if (conversation.isAnswering && !conversation.isBackground && conversation.id) this.apart.set(conversation.id, conversation);
  }

  // The conversation of an id and the one beside it, the first of the two first.
  async openPair(id) {
    const found = await this.open(id);
    if (!found.partner) return [found];
    try {
      const other = await this.open(found.partner);
      return found.isSecond ? [other, found] : [found, other];
    } catch (error) {
      if (!error.status) throw error;
      return [found]; // the other was deleted
    }
  }

  async save(conversation) {
    if (this.isStoring && !conversation.id?.startsWith(OWN)) {
      try {
        return await this.stored.save(conversation);
      } catch (error) {
        if (error.code !== 'storing_disabled') throw error;
        this.isStoring = false;
      }
    }
    if (!conversation.id?.startsWith(OWN)) {
      Object.assign(conversation, { id: null, partner: null });
      for (const entry of conversation.entries) entry.ids = [];
    }
    return this.tab.save(conversation);
  }

  describe(conversation) {
    return this.of(conversation.id).describe(conversation);
  }

  rename(id, title) {
    return this.of(id).rename(id, title);
  }

  remove(id) {
    return this.of(id).remove(id);
  }
}

export async function findRecords() {
  try {
    await get(`${PATH}?limit=1`);
    return new Records(new StoredRecords());
  } catch (error) {
    if (error.status) return new Records(null);
    throw error;
  }
}
