package main

import (
	"encoding/binary"
	"net/netip"
	"strconv"
)

// This file is what both sides know: which names there are, what their addresses are, and how a question is answered.

// hostOf is the i-th name, in lower-case ASCII without a final dot.
func hostOf(i int) string {
	var buf [32]byte
	return string(append(strconv.AppendInt(append(buf[:0], 'h'), int64(i), 10), ".bulk.test"...))
}

// addressOf is the address of a name, upper-case letters standing for lower-case ones and a final dot for nothing: a hash
// of it, in 10.0.0.0/8.
func addressOf(host string) netip.Addr {
	h := hashSeed
	for i := range len(host) {
		h = hashByte(h, host[i])
	}
	if len(host) > 0 && host[len(host)-1] != '.' {
		h = hashByte(h, '.')
	}
	return netip.AddrFrom4(fold(h))
}

// The hash is FNV-1a: whoever measures must hash as many names a second as are looked up.
const (
	hashSeed  = uint32(2166136261)
	hashPrime = uint32(16777619)
)

func hashByte(h uint32, b byte) uint32 {
	if 'A' <= b && b <= 'Z' {
		b += 'a' - 'A'
	}
	return (h ^ uint32(b)) * hashPrime
}

func fold(h uint32) [4]byte {
	h ^= h >> 24
	return [4]byte{10, byte(h >> 16), byte(h >> 8), byte(h)}
}

// What a packet is made of (RFC 1035 §4.1).
const (
	headerSize = 12
	typeA      = 1
	typeOPT    = 41
	classIN    = 1

	flagResponse  = 0x80 // third byte
	flagDesired   = 0x01
	opcodes       = 0x78
	flagAvailable = 0x80 // fourth byte

	codeFormat         = 1
	codeNotImplemented = 4
	codeRefused        = 5

	maxName = 255 // bytes, with the lengths of its labels

	// maxReply is the longest packet that reply writes: header, question, one record of A, one of OPT.
	maxReply = headerSize + maxName + 4 + 16 + 11
)

// ednsSize is the largest packet that the server says it would take. It has no need of any.
const ednsSize = 1232

// The ends of a packet, as they always are.
var (
	recordA = []byte{
		0xc0, headerSize, // the name of the question, which stands behind the header (RFC 1035 §4.1.4)
		0, typeA, 0, classIN,
		0, 0, 1, 44, // 300 s
		0, 4,
	}
	recordOPT = []byte{0, 0, typeOPT, ednsSize >> 8, ednsSize & 0xff, 0, 0, 0, 0, 0, 0}
)

// reply appends the answer to a question, and nothing where a packet asks none: the address of the name for A, none
// for other types. An EDNS record is answered by one (RFC 6891 §6.1.1), whatever is in it. It appends maxReply bytes at
// most.
func reply(dst, packet []byte) []byte {
	if len(packet) < headerSize || packet[2]&flagResponse != 0 {
		return dst
	}
	if packet[2]&opcodes != 0 {
		return refusal(dst, packet, codeNotImplemented)
	}
	hash, end := readName(packet, headerSize)
	if binary.BigEndian.Uint16(packet[4:]) != 1 || end < 0 || end+4 > len(packet) {
		return refusal(dst, packet, codeFormat)
	}
	kind, class := binary.BigEndian.Uint16(packet[end:]), binary.BigEndian.Uint16(packet[end+2:])
	end += 4
	if class != classIN {
		return refusal(dst, packet, codeRefused)
	}
	at := len(dst)
	dst = append(dst, packet[:end]...)
	dst[at+2], dst[at+3] = flagResponse|packet[2]&flagDesired, flagAvailable
	clear(dst[at+6 : at+headerSize]) // no records so far
	if kind == typeA {
		dst[at+7] = 1
		dst = append(dst, recordA...)
		addr := fold(hash)
		dst = append(dst, addr[:]...)
	}
	if hasEDNS(packet, end) {
		dst[at+11] = 1
		dst = append(dst, recordOPT...)
	}
	return dst
}

// readName walks over a name that is not compressed, as that of a question never is. It returns the name's hash and where
// it ends, -1 for what is no name.
func readName(packet []byte, at int) (hash uint32, end int) {
	hash = hashSeed
	for start := at; at < len(packet); {
		n := int(packet[at])
		at++
		if n == 0 {
			if at-start > maxName {
				return 0, -1
			}
			return hash, at
		}
		if n > 63 || at+n > len(packet) {
			return 0, -1
		}
		for _, b := range packet[at : at+n] {
			hash = hashByte(hash, b)
		}
		hash = hashByte(hash, '.')
		at += n
	}
	return 0, -1
}

// hasEDNS reports whether an OPT record stands behind the question, which is where a client without TSIG puts it.
func hasEDNS(packet []byte, at int) bool {
	none := binary.BigEndian.Uint32(packet[6:]) == 0 // neither answers nor authority
	return none && binary.BigEndian.Uint16(packet[10:]) > 0 && len(packet) >= at+len(recordOPT) && packet[at] == 0 &&
		binary.BigEndian.Uint16(packet[at+1:]) == typeOPT
}

// refusal appends a bare header that says why a question has no answer.
func refusal(dst, packet []byte, code byte) []byte {
	flags := flagResponse | packet[2]&(opcodes|flagDesired)
	return append(dst, packet[0], packet[1], flags, flagAvailable|code, 0, 0, 0, 0, 0, 0, 0, 0)
}
