//! SHA-256 (FIPS 180-4).

use std::sync::OnceLock;

/// First 32 bits of the fractional parts of the cube roots of the first 64 primes.
fn constants() -> ([u32; 64], [u32; 8]) {
    let mut k = [0u32; 64];
    let mut h = [0u32; 8];
    let mut prime = 2u64;
    for i in 0..64 {
        while (2..prime).take_while(|d| d * d <= prime).any(|d| prime % d == 0) {
            prime += 1;
        }
        k[i] = fraction(prime, 3);
        if i < 8 {
            h[i] = fraction(prime, 2);
        }
        prime += 1;
    }
    (k, h)
}

/// First 32 bits of the fractional part of a prime's square or cube root, in whole numbers.
fn fraction(prime: u64, root: u32) -> u32 {
    let target = u128::from(prime) << (32 * root);
    let (mut low, mut high) = (0u128, 1u128 << 40);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if middle.pow(root) <= target {
            low = middle;
        } else {
            high = middle;
        }
    }
    low as u32
}

/// The digest in hexadecimal.
pub fn hex(data: &[u8]) -> String {
    static CONSTANTS: OnceLock<([u32; 64], [u32; 8])> = OnceLock::new();
    let (k, mut state) = CONSTANTS.get_or_init(constants);
    let mut padded = data.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend(((data.len() as u64) * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        compress(&mut state, block, k);
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

fn compress(state: &mut [u32; 8], block: &[u8], k: &[u32; 64]) {
    let mut w = [0u32; 64];
    for (word, bytes) in w.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    for i in 16..64 {
        let s0 = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ (w[i - 15] >> 3);
        let s1 = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for i in 0..64 {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let t1 = h.wrapping_add(s1).wrapping_add(choice).wrapping_add(k[i]).wrapping_add(w[i]);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let t2 = s0.wrapping_add((a & b) ^ (a & c) ^ (b & c));
        (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(t1), c, b, a, t1.wrapping_add(t2));
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(long), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }
}
