package dynamostore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Sealer encrypts results, steps' results and accepted inputs in this process, before they are sent, and
// decrypts them. Package kmsseal has one over AWS KMS. It must be safe for concurrent use.
//
// What it seals is bound to bound: Open must fail if it gets another bound than Seal got, as an
// AEAD does with its additional data. The store makes it of the record's id, the result's place in
// the record and its size, so that no result can be put in another one's place.
type Sealer interface {
	// Ready returns an error if Seal would surely fail now. It is asked before each claim, in the
	// claim's time: if it fails, nothing is executed.
	Ready(ctx context.Context) error
	// Seal returns the sealed form of plain, which may be another one at every call. It runs when the
	// operation has been executed already. If it fails, the outcome is recorded without its result,
	// which is added once Seal succeeds; a step that it fails for stops the operation, as one that
	// cannot be recorded. It must not change plain.
	Seal(ctx context.Context, plain, bound []byte) ([]byte, error)
	// Open returns what was sealed. An error that matches [protocol.ErrStoreUnavailable], or that of a
	// context, means that a later call may succeed: the caller is asked to try again. Any other
	// error makes the record unreadable. It must not change sealed.
	Open(ctx context.Context, sealed, bound []byte) ([]byte, error)
	// Overhead is by how many bytes a sealed form is longer than plain, at most: 0 to [MaxSealOverhead].
	// It must always be the same. Each step takes as much more of its record.
	Overhead() int
}

// MaxSealOverhead is the largest [Sealer.Overhead].
const MaxSealOverhead = 1 << 10

const (
	// encodingSealed is the name of a result that a [Sealer] has sealed. One that was compressed
	// before has the name of the compression, and this after it. Code from before it knows neither
	// and takes the record for unreadable.
	encodingSealed     = "sealed"
	encodingZlibSealed = encodingZlib + "+" + encodingSealed

	// sealedFields is what the description of a sealed result takes in the record, at most, in
	// addition to that of a plain one.
	sealedFields = len(encodingSealed) + 1
)

const noSealer = "its results are encrypted: give the store the Options.Sealer with which they were written"

// target is a result's place: of the record, or of a step.
type target struct {
	id   string
	step string // empty for the record's own
}

// bound is what a sealed result is bound to. No two places, sizes or compressions give the same.
func (t target) bound(size int, compressed bool) []byte {
	b := make([]byte, 0, 32+len(t.id)+len(t.step))
	b = append(b, "idem1"...)
	kind, enc := byte('r'), byte(0)
	if t.step != "" {
		kind = 's'
	}
	if compressed {
		enc = 1
	}
	b = append(b, kind, enc)
	b = binary.AppendUvarint(b, uint64(size))
	b = binary.AppendUvarint(b, uint64(len(t.id)))
	return append(append(b, t.id...), t.step...)
}

// pack makes the stored form of a result: compressed, then sealed if the store seals. An empty
// result is not sealed, since there is nothing to hide. The error is the sealer's.
//
// A sealed form is another one at each call. progress, which may be nil, keeps it for the next
// call with the same result: parts that are stored must be parts of it.
func (s *Store) pack(k *call, t target, result []byte, inline int, progress *protocol.Progress) (protocol.Body, error) {
	if s.sealer == nil || len(result) == 0 {
		return s.codec.packUpTo(result, inline), nil
	}
	if b, ok := progress.Form().(*protocol.Body); ok {
		return *b, nil
	}
	b := s.codec.smaller(result)
	k, cancel := k.share(partShare)
	defer cancel()
	sealed, err := s.seal(k.ctx, b.Data, t.bound(b.Size, b.Encoding != ""))
	if err != nil {
		return protocol.Body{}, err
	}
	if b.Encoding == "" {
		b.Encoding = encodingSealed
	} else {
		b.Encoding = encodingZlibSealed
	}
	if b.Stored <= inline {
		// The size of the result decides what is kept in the record, as if it was not sealed.
		inline = len(sealed)
	}
	b.Data, b.Stored = sealed, len(sealed)
	place(&b, inline)
	if progress != nil {
		kept := b
		progress.KeepForm(&kept)
	}
	return b, nil
}

// mayClaim reports why no attempt may begin here. Whether it begins, its results can be sealed, and
// those of the steps before it can be read as far as they lie in the record: else a handler would
// run up to the first of them, and no further.
func (s *Store) mayClaim(k *call, c *protocol.Claim) error {
	if s.sealer == nil {
		if c.Record.Sealed {
			return unreadable(c.Record.ID, noSealer)
		}
		return nil
	}
	if err := s.ready(k.ctx); err != nil {
		return k.fail(fmt.Errorf("nothing was executed, since its result could not be encrypted: %w", err))
	}
	if c.Replace {
		return nil
	}
	for name, step := range c.Record.Steps {
		if len(step.Body.Data) == 0 || !strings.HasSuffix(step.Body.Encoding, encodingSealed) {
			continue
		}
		if _, _, err := s.open(k.ctx, k.op, target{c.Record.ID, name}, step.Body, step.Body.Data); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) ready(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = protocol.RedactPanic("dynamostore: Sealer.Ready", p)
		}
	}()
	return s.sealer.Ready(ctx)
}

// mayWrite refuses a result, of an operation or of a step, that would be the only plain one of
// its record.
func (s *Store) mayWrite(op, id string, sealed bool, result []byte) error {
	if !sealed || s.sealer != nil || len(result) == 0 {
		return nil
	}
	return &protocol.ConfigError{What: "dynamostore: " + op,
		Problem: fmt.Sprintf("the results of record %q are encrypted, and this store would write a plain one: "+
			"give it the Options.Sealer of the record's operation", id)}
}

// encode makes the item of a whole record, which says that its results are sealed if they are.
func (s *Store) encode(rec *protocol.Record) item {
	it := encode(rec)
	if s.sealer != nil {
		it[schema.Sealed] = &types.AttributeValueMemberBOOL{Value: true}
	}
	return it
}

// seal calls the sealer. What was executed must be recorded, whatever it does.
func (s *Store) seal(ctx context.Context, plain, bound []byte) (sealed []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = protocol.RedactPanic("dynamostore: Sealer.Seal", p)
			sealed, err = nil, fmt.Errorf("the result cannot be encrypted: %w", err)
		}
	}()
	sealed, err = s.sealer.Seal(ctx, plain, bound)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the result cannot be encrypted: %w", err)
	case len(sealed) > len(plain)+s.sealer.Overhead() || len(sealed) == 0:
		return nil, fmt.Errorf("the result cannot be encrypted: dynamostore: Sealer.Seal made %d bytes of %d, "+
			"and Sealer.Overhead is %d: correct the Sealer",
			len(sealed), len(plain), s.sealer.Overhead())
	}
	return sealed, nil
}

// open gives the result's form before it was sealed, and what that is encoded as. Of a result that is
// not sealed it gives the stored form.
func (s *Store) open(ctx context.Context, op string, t target, b protocol.Body,
	stored []byte) (protocol.Body, []byte, error) {
	switch before, sealed := strings.CutSuffix(b.Encoding, encodingSealed); {
	case !sealed && s.sealedOnly && b.Size > 0:
		return b, nil, unreadable(t.id, "its result is not encrypted, which Options.SealedOnly forbids")
	case !sealed:
		return b, stored, nil
	case s.sealer == nil:
		return b, nil, unreadable(t.id, noSealer)
	default:
		b.Encoding = strings.TrimSuffix(before, "+")
	}
	plain, err := s.unseal(ctx, stored, t.bound(b.Size, b.Encoding != ""))
	switch {
	case err == nil:
		return b, plain, nil
	case errors.Is(err, protocol.ErrStoreUnavailable), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled):
		return b, nil, &protocol.StoreError{Op: op, Err: fmt.Errorf("the result cannot be decrypted now: %w", err)}
	}
	return b, nil,
		unreadable(t.id, "its result cannot be decrypted, because it was altered or is of another key or record: %v", err)
}

func (s *Store) unseal(ctx context.Context, sealed, bound []byte) (plain []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			plain, err = nil, protocol.RedactPanic("dynamostore: Sealer.Open", p)
		}
	}()
	return s.sealer.Open(ctx, sealed, bound)
}

// place decides whether the stored form is kept in the record.
func place(b *protocol.Body, inline int) {
	if b.Stored > inline {
		b.Parts = partCount(b.Stored)
		sum := sha256.Sum256(b.Data)
		b.Digest = sum[:]
	}
}
