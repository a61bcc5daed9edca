// Server-sent events (WHATWG HTML, section 9.2) from the body of a response: EventSource would send no key.

const END = '[DONE]';

export async function readEvents(body, receive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let name = '';
  let data = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
      if (line === '') {
        const text = data.join('\n');
        if (data.length && text !== END) receive(name, JSON.parse(text));
        name = '';
        data = [];
      } else if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
      else if (line.startsWith('event:')) name = line.slice(6).trim();
    }
  }
}
