package kmsseal

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/smithy-go"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Defaults and limits of [Options].
const (
	DefaultMaxAge  = time.Hour
	DefaultMaxUses = 1 << 24
	// MaxMaxUses keeps a key, used for twice as long, within the 2^32 random nonces that NIST SP
	// 800-38D allows.
	MaxMaxUses = 1 << 31
)

const (
	version = 1
	// A sealed form is: the version, the length of the wrapped key (two bytes, big endian), the wrapped
	// key, the nonce, and what GCM gives, its tag last.
	head    = 3
	nonce   = 12
	tag     = 16
	keySize = 32
	// maxWrapped is the longest wrapped key: KMS wraps one of 32 bytes in 184.
	maxWrapped = 256

	// maxOpened bounds the data keys in memory.
	maxOpened = 256
	// pause is how long no new data key is asked for after KMS has failed to give one.
	pause = time.Second
	// patience is the time after which a call without an answer says something of KMS, and not of
	// its caller's time alone.
	patience = 500 * time.Millisecond
	// callTime bounds a call to KMS with its repeats, whose caller may have minutes: the SDK itself
	// waits for an answer without an end.
	callTime = 3 * time.Second
)

// Client is what a [Sealer] uses of a *kms.Client.
type Client interface {
	GenerateDataKey(context.Context, *kms.GenerateDataKeyInput, ...func(*kms.Options)) (*kms.GenerateDataKeyOutput, error)
	Decrypt(context.Context, *kms.DecryptInput, ...func(*kms.Options)) (*kms.DecryptOutput, error)
}

// Options of a [Sealer].
type Options struct {
	// Key is the KMS key that wraps data keys: its id, ARN or alias. Required.
	Key string
	// FormerKeys are KMS keys that have wrapped data keys before, for reading alone. A data
	// key that any other key has wrapped is refused.
	FormerKeys []string
	// Context is the encryption context of all calls to KMS, which CloudTrail records: no secrets.
	// After a change what was written before is unreadable. Nil means none.
	Context map[string]string
	// MaxAge is how long a data key is used, and kept in memory. Zero means [DefaultMaxAge]; at
	// least a second.
	MaxAge time.Duration
	// MaxUses is how many results are encrypted with one data key. Zero means [DefaultMaxUses]; at
	// most [MaxMaxUses].
	MaxUses int
}

// Sealer is a dynamostore.Sealer over AWS KMS. Make it with [New], once; it is safe for concurrent use.
type Sealer struct {
	client Client
	o      Options

	// asking holds the one who asks KMS for a data key.
	asking chan struct{}

	mu      sync.Mutex
	current *dataKey
	failed  error // the latest answer to who asked for a data key, at failedAt
	at      time.Time
	opened  map[string]*dataKey // by the wrapped key
}

// dataKey is one in use.
type dataKey struct {
	aead    cipher.AEAD
	wrapped []byte
	since   time.Time
	uses    int
}

// age is by the clock that says more: a process may be frozen for hours, as Lambda does between
// invocations, and the monotonic clock may stand still then.
func (k *dataKey) age(now time.Time) time.Duration {
	return max(now.Sub(k.since), now.Round(0).Sub(k.since.Round(0)))
}

// New returns a sealer. It makes no call: see [Sealer.Ready]. Mistakes are a [*protocol.ConfigError].
func New(client Client, o Options) (*Sealer, error) {
	invalid := func(what, format string, args ...any) (*Sealer, error) {
		return nil, &protocol.ConfigError{What: "kmsseal: " + what, Problem: fmt.Sprintf(format, args...)}
	}
	switch c, ok := client.(*kms.Client); {
	case client == nil || ok && c == nil:
		return invalid("client", "is nil: make one with kms.NewFromConfig")
	case o.Key == "" || slices.Contains(o.FormerKeys, ""):
		return invalid("Options.Key", "or one of FormerKeys is empty: name a KMS key by its id, ARN or alias")
	case o.MaxAge != 0 && o.MaxAge < time.Second:
		return invalid("Options.MaxAge", "is %v: use at least a second, or zero for %v", o.MaxAge, DefaultMaxAge)
	case o.MaxUses < 0 || o.MaxUses > MaxMaxUses:
		return invalid("Options.MaxUses", "is %d: use 1 to %d, or zero for %d", o.MaxUses, MaxMaxUses, DefaultMaxUses)
	}
	o.MaxAge, o.MaxUses = cmp.Or(o.MaxAge, DefaultMaxAge), cmp.Or(o.MaxUses, DefaultMaxUses)
	o.FormerKeys, o.Context = slices.Clone(o.FormerKeys), maps.Clone(o.Context)
	return &Sealer{client: client, o: o, asking: make(chan struct{}, 1), opened: map[string]*dataKey{}}, nil
}

// Ready implements dynamostore.Sealer: it gets the data key for what is sealed next, if there is none.
// Call it when the process starts too, which then has it for its first request.
func (s *Sealer) Ready(ctx context.Context) error {
	_, err := s.key(ctx, 0)
	return err
}

// Overhead implements dynamostore.Sealer.
func (s *Sealer) Overhead() int { return head + maxWrapped + nonce + tag }

// Seal implements dynamostore.Sealer.
func (s *Sealer) Seal(ctx context.Context, plain, bound []byte) ([]byte, error) {
	k, err := s.key(ctx, 1)
	if err != nil {
		return nil, err
	}
	sealed := make([]byte, 0, head+len(k.wrapped)+nonce+len(plain)+tag)
	sealed = binary.BigEndian.AppendUint16(append(sealed, version), uint16(len(k.wrapped)))
	sealed = append(sealed, k.wrapped...)
	return k.aead.Seal(sealed, nil, plain, additional(sealed, bound)), nil
}

// Open implements dynamostore.Sealer.
func (s *Sealer) Open(ctx context.Context, sealed, bound []byte) ([]byte, error) {
	if len(sealed) < head || sealed[0] != version {
		return nil, errors.New("kmsseal: this is nothing that kmsseal has sealed, or a later version of it has")
	}
	n := head + int(binary.BigEndian.Uint16(sealed[1:]))
	if n > head+maxWrapped || len(sealed) < n+nonce+tag {
		return nil, errors.New("kmsseal: what was sealed is cut short")
	}
	k, err := s.unwrap(ctx, sealed[head:n])
	if err != nil {
		return nil, err
	}
	plain, err := k.aead.Open(nil, nil, sealed[n:], additional(sealed[:n], bound))
	if err != nil {
		return nil, fmt.Errorf("kmsseal: %w", err)
	}
	return plain, nil
}

// additional is GCM's additional data: what stands before the nonce, whose length is part of it, and
// what the caller binds to.
func additional(before, bound []byte) []byte { return slices.Concat(before, bound) }

// usable says how long a data key is: due from MaxAge and MaxUses on, over from twice as much.
func (s *Sealer) usable(k *dataKey, now time.Time) (due, over bool) {
	if k == nil {
		return true, true
	}
	age := k.age(now)
	return age >= s.o.MaxAge || k.uses >= s.o.MaxUses, age >= 2*s.o.MaxAge || k.uses >= 2*s.o.MaxUses
}

// take counts uses of the current data key; nil if another one is to be asked for first.
func (s *Sealer) take(uses int, evenDue bool) (*dataKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	due, over := s.usable(s.current, now)
	waits := s.failed != nil && now.Sub(s.at) < pause
	switch {
	case over && waits:
		return nil, s.failed
	case over || due && !waits && !evenDue:
		return nil, nil
	}
	s.current.uses += uses
	return s.current, nil
}

// key is the data key for so many results.
func (s *Sealer) key(ctx context.Context, uses int) (*dataKey, error) {
	if k, err := s.take(uses, false); k != nil || err != nil {
		return k, err
	}
	select {
	case s.asking <- struct{}{}:
	default:
		// Another caller asks. What is due only is good enough until it is there.
		if k, err := s.take(uses, true); k != nil || err != nil {
			return k, err
		}
		select {
		case s.asking <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("kmsseal: no data key in time: %w", context.Cause(ctx))
		}
	}
	defer func() { <-s.asking }()
	if k, err := s.take(uses, false); k != nil || err != nil {
		return k, err
	}
	began := time.Now()
	next, err := s.generate(ctx)
	s.mu.Lock()
	switch {
	case err == nil:
		s.current, s.failed = next, nil
		s.keep(next)
	case ctx.Err() == nil || time.Since(began) >= patience:
		s.failed, s.at = err, time.Now()
	}
	s.mu.Unlock()
	if k, _ := s.take(uses, true); k != nil {
		return k, nil
	}
	return nil, err
}

func (s *Sealer) generate(ctx context.Context) (*dataKey, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	out, err := s.client.GenerateDataKey(ctx, &kms.GenerateDataKeyInput{
		KeyId: &s.o.Key, KeySpec: types.DataKeySpecAes256, EncryptionContext: s.o.Context,
	})
	if err != nil {
		return nil, fmt.Errorf("kmsseal: KMS gives no data key of %s: %w", s.o.Key, err)
	}
	if n := len(out.CiphertextBlob); n == 0 || n > maxWrapped {
		return nil, fmt.Errorf("kmsseal: KMS has wrapped a data key in %d bytes, and there is room for %d: use a symmetric "+
			"key of KMS itself", n, maxWrapped)
	}
	return newDataKey(out.Plaintext, out.CiphertextBlob)
}

// newDataKey makes a data key of its plain form, which it clears.
func newDataKey(plain, wrapped []byte) (*dataKey, error) {
	defer clear(plain)
	if len(plain) != keySize {
		return nil, fmt.Errorf("kmsseal: KMS gave a data key of %d bytes and not of %d", len(plain), keySize)
	}
	block, err := aes.NewCipher(plain)
	if err != nil {
		return nil, fmt.Errorf("kmsseal: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("kmsseal: %w", err)
	}
	return &dataKey{aead: aead, wrapped: slices.Clone(wrapped), since: time.Now()}, nil
}

// unwrap is the data key that was wrapped so, from memory or from KMS.
func (s *Sealer) unwrap(ctx context.Context, wrapped []byte) (*dataKey, error) {
	s.mu.Lock()
	k := s.opened[string(wrapped)]
	s.mu.Unlock()
	if k != nil && k.age(time.Now()) < 2*s.o.MaxAge {
		return k, nil
	}
	k, err := s.decrypt(ctx, wrapped)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(k)
	return k, nil
}

// decrypt asks KMS with each key that may have wrapped it: with the key named, KMS accepts no other.
func (s *Sealer) decrypt(ctx context.Context, wrapped []byte) (*dataKey, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var err error
	for _, key := range append([]string{s.o.Key}, s.o.FormerKeys...) {
		var out *kms.DecryptOutput
		out, err = s.client.Decrypt(ctx, &kms.DecryptInput{
			CiphertextBlob: wrapped, KeyId: &key, EncryptionContext: s.o.Context,
			EncryptionAlgorithm: types.EncryptionAlgorithmSpecSymmetricDefault,
		})
		if err == nil {
			return newDataKey(out.Plaintext, wrapped)
		}
		if _, other := errors.AsType[*types.IncorrectKeyException](err); !other {
			break
		}
	}
	err = fmt.Errorf("kmsseal: KMS does not unwrap a data key: %w", err)
	if passes(err) {
		return nil, fmt.Errorf("%w: %w", protocol.ErrStoreUnavailable, err)
	}
	return nil, err
}

// keep keeps a data key in memory, in place of those that are too old, else of the oldest if
// there are too many.
func (s *Sealer) keep(k *dataKey) {
	maps.DeleteFunc(s.opened, func(_ string, old *dataKey) bool { return old.age(k.since) >= 2*s.o.MaxAge })
	if len(s.opened) >= maxOpened {
		oldest := ""
		for wrapped, old := range s.opened {
			if oldest == "" || old.since.Before(s.opened[oldest].since) {
				oldest = wrapped
			}
		}
		delete(s.opened, oldest)
	}
	s.opened[string(k.wrapped)] = k
}

// passing are the errors after which the SDK tries again: throttling, time-outs, lost connections,
// and statuses of 500 and more.
var passing = retry.IsErrorRetryables(retry.DefaultRetryables)

// passes reports whether the same call to KMS may succeed later. What KMS answers for good is that it
// may not be used, that the key is not the one, disabled or deleted, and that what it was
// given is no wrapped key.
func passes(err error) bool {
	if passing.IsErrorRetryable(err) == aws.TrueTernary {
		return true
	}
	answer, ok := errors.AsType[smithy.APIError](err)
	return !ok || answer.ErrorFault() == smithy.FaultServer || answer.ErrorCode() == "LimitExceededException"
}
