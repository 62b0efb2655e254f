package manifest

// Stable codes of a manifest's problems, beside those of package job that a
// declaration shares with an enqueue.
const (
	CodeCron          = "X_CRON_INVALID"
	CodeDeclaration   = "X_JOB_DECLARATION_INVALID" // several required keys are missing
	CodeDuplicate     = "X_MANIFEST_DUPLICATE"      // one key, or one durable name, twice
	CodeFile          = "X_MANIFEST_FILE"           // missing, a folder, too big, not UTF-8
	CodeKeyRequired   = "X_IDEMPOTENCY_REQUIRED"
	CodeModule        = "X_MODULE_PATH"
	CodeName          = "X_NAME_INVALID"
	CodeReference     = "X_MANIFEST_REFERENCE" // a name that nothing declares
	CodeRequired      = "X_MANIFEST_REQUIRED"  // a required key is missing
	CodeSchema        = "X_SCHEMA_INVALID"
	CodeSyntax        = "X_MANIFEST_SYNTAX" // not TOML
	CodeTemplate      = "X_TEMPLATE_INVALID"
	CodeTenantMissing = "X_JOB_TENANT_REQUIRED"
	CodeType          = "X_MANIFEST_TYPE"
	CodeUnknownKey    = "X_MANIFEST_UNKNOWN_KEY"
	CodeValue         = "X_MANIFEST_VALUE" // right type, value outside what is allowed
	CodeZone          = "X_ZONE_INVALID"
)
