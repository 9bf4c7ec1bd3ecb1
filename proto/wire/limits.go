package wire

import "time"

// What both ends of a connection must agree on.
const (
	// MaxMessageBytes is the greatest message that either end takes unless it is configured otherwise: 16 MiB. A value
	// of 5 MiB, five times Kafka's default limit of a record, fits together with any key and answer. grpc's own
	// default, 4 MiB, is a limit of the receiving client alone and would refuse what the server was glad to send.
	MaxMessageBytes = 16 << 20
	// MessageSlack is what a message may hold beside its keys and values: the answers, field tags and lengths.
	MessageSlack = 1 << 20
	// MaxKeyBytes is the greatest key that a server takes: 64 KiB - 1, the most any engine stores.
	MaxKeyBytes = 1<<16 - 1
	// MaxStoreNameBytes is the longest store name; a changelog topic of the name could not exist beyond it (249).
	MaxStoreNameBytes = 249
)

// Keepalive. A client that pings more often than its server allows is cut off, so the interval of the one and the policy
// of the other are constants of the same block, and a test holds them apart.
const (
	// KeepaliveTime is how long a client lets a connection be quiet before it pings. 10 s is the least that grpc-go
	// allows; it bounds how long a host that vanished without a reset looks alive to the transport.
	KeepaliveTime = 10 * time.Second
	// KeepaliveTimeout is how long it waits for the answer before it closes the connection.
	KeepaliveTimeout = 3 * time.Second
	// KeepaliveMinTime is the interval below which a server takes pings for abuse. Half of KeepaliveTime, so that
	// jitter and a slow clock do no harm.
	KeepaliveMinTime = KeepaliveTime / 2
	// ServerKeepaliveTime is how long a server lets a connection be quiet before it pings the client: streams of a
	// client that vanished end after this and KeepaliveTimeout.
	ServerKeepaliveTime = 20 * time.Second
)

// Flow control. The windows are fixed: grpc-go's own estimate of what a line takes costs a ping and its answer, a system
// call at either end each, with nearly every point read, and may let a reader that does not read hold 16 MiB per stream.
const (
	// RequestWindowBytes is what a server takes in of a request before the handler asks for it; a longer message is let in
	// when it is read, a round trip later.
	RequestWindowBytes = 256 << 10
	// AnswerWindowBytes is the same of an answer at the client: eight messages of a scan, 20 MB/s over 50 ms.
	AnswerWindowBytes = 1 << 20
	// ConnectionWindowBytes is for all streams of a connection together. It holds up nobody who does not read, only those
	// who send faster than a round trip allows.
	ConnectionWindowBytes = 4 << 20
)
