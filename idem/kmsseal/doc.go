// Package kmsseal encrypts what package dynamostore keeps, with data keys of AWS KMS.
//
//	sealer, err := kmsseal.New(kms.NewFromConfig(cfg), kmsseal.Options{Key: os.Getenv(schema.EnvKMSKey)})
//	err = sealer.Ready(ctx)
//	store, err := dynamostore.New(client, table, &dynamostore.Options{Sealer: sealer})
//
// It is envelope encryption: KMS makes a data key and gives it plain and wrapped by the KMS key. Each
// result is encrypted with the plain one, by AES-256-GCM under a random nonce of 96 bits (NIST SP
// 800-38D), and has the wrapped one next to it. The plain one is kept in memory alone.
//
// A process uses one data key for [Options].MaxAge and MaxUses, and keeps data keys that it has had
// unwrapped for at most twice that time. So KMS is called for the first claim of a process and once an
// hour after it, and for reading once for each process that wrote. The price, against a data key for each result,
// is that who has a process's memory can read what that process, and those whose results it has
// read, have written in that time.
//
// # Faults
//
// When a data key is due to be replaced and KMS does not give another one, the former is used for as
// long again. Without any, nothing is executed: the store asks [Sealer.Ready] before each claim. Call
// it when the process starts too, so that a missing permission ends the deployment and not a request.
// A result is not readable while KMS cannot be asked; its reader gets an error that can be retried. It is unreadable
// for good if KMS refuses to unwrap its key, and if anything of it was altered. A call to KMS takes
// three seconds at most, with its repeats, and no longer than the call to the store that it is for.
//
// # Permissions
//
// What writes needs kms:GenerateDataKey and kms:Decrypt on the key; what only reads kms:Decrypt; what
// needs no results, such as the ready sweeper, needs neither. Both the role's policy and the key's must
// allow it (https://docs.aws.amazon.com/kms/latest/developerguide/key-policies.html). Name the key in
// the role's policy and no wildcard. A condition on kms:EncryptionContext:<name> holds the key to
// [Options].Context. Function.Seal, GrantEncrypt and GrantDecrypt of package infra do so.
//
// idemctl takes the key by --kms-key and IDEM_KMS_KEY, and a sweeper of your own by
// sweeping.MainSealed.
//
// The KMS key is symmetric (SYMMETRIC_DEFAULT). Its rotation by KMS changes nothing here. When another
// key takes its place, leave the former in [Options].FormerKeys until what it wrapped has expired;
// deleting a key makes unreadable what it has wrapped.
package kmsseal
