// Files of the user as parts of a message: images and PDFs, for models that see.

const IMAGES = ['image/png', 'image/jpeg', 'image/webp', 'image/gif'];
const LARGEST = 20_000_000;
export const ACCEPTED = [...IMAGES, 'application/pdf'].join(',');

const dataUrl = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(new Error(`“${file.name}” cannot be read.`));
  reader.readAsDataURL(file);
});

export async function partOfFile(file) {
  if (file.size > LARGEST) throw new Error(`“${file.name}” has more than 20 MB.`);
  if (IMAGES.includes(file.type)) return { type: 'input_image', image_url: await dataUrl(file) };
  if (file.type === 'application/pdf') {
    return { type: 'input_file', filename: file.name, file_data: await dataUrl(file) };
  }
  throw new Error(`“${file.name}” is no image and no PDF.`);
}

// The policy of the page allows blobs as images, and no data URLs.
const shown = new Map();
export function imageAddress(url) {
  const [, type, data] = /^data:(image\/(?:png|jpeg|webp|gif));base64,([\w+/=]+)$/.exec(url || '') || [];
  if (!type) return null;
  try {
    if (!shown.has(url)) shown.set(url, URL.createObjectURL(new Blob([Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0))], { type })));
  } catch {
    return null; // another client has stored what is no base64
  }
  return shown.get(url);
}
