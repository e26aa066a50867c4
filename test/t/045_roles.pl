
# What superusers allow to roles and databases: zklock.allowed_paths, zklock.session_level,
# zklock.max_locks_per_backend.  doc/security.md says it, sentence by sentence.

use strict;
use warnings;

use File::Basename qw(dirname);

use ZklockTest;

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('n', $zk,
	'zklock.session_timeout' => '30s',
	'zklock.linger' => 0,
	'zklock.leader_of' => '/hidden/leader, /jobs/leader',
	init => [ allows_streaming => 1 ]);
my $super = $node->backend;
$super->query(q{
	CREATE ROLE batch LOGIN;
	CREATE ROLE grouped LOGIN;
	CREATE ROLE staff;
	GRANT staff TO batch, grouped;
	CREATE DATABASE pooled;
	ALTER ROLE batch SET zklock.allowed_paths = '/jobs/, /reports';
});
sub login { my ($role, %params) = @_; return $node->backend(extra_params => [ '-U', $role ], %params); }

sub try_lock { my ($path) = @_; return "SELECT zk_xact_lock_acquire('$path', '0')"; }

sub is_refused
{
	my ($result, $path, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{errcode}, '42501', $what);
	like($result->{err}, qr/permission denied for (?:lock|resource) "\Q$path\E".*DETAIL:.*"zklock\.allowed_paths"/s, "$what: the path and the setting");
	return;
}

# --- every function that takes a path ---------------------------------------------------------

# All text arguments of all functions are paths, except those that are named here. %s is a path.
my %calls = (
	'zk_lock_acquire' => q{'%s', '0'},
	'zk_xact_lock_acquire' => q{'%s', '0'},
	'zk_lock_release' => q{'%s'},
	'zk_read_lock_acquire' => q{'%s', '0'},
	'zk_xact_read_lock_acquire' => q{'%s', '0'},
	'zk_read_lock_release' => q{'%s'},
	'zk_write_lock_acquire' => q{'%s', '0'},
	'zk_xact_write_lock_acquire' => q{'%s', '0'},
	'zk_write_lock_release' => q{'%s'},
	'zk_semaphore_acquire' => q{'%s', 2, '0'},
	'zk_xact_semaphore_acquire' => q{'%s', 2, '0'},
	'zk_semaphore_release' => q{'%s'},
	'zk_semaphore_limit' => q{'%s'},
	'zk_semaphore_set_limit' => q{'%s', 2},
	'zk_multilock_acquire' => q{ARRAY['/jobs/other', '%s'], '0'},
	'zk_xact_multilock_acquire' => q{ARRAY['/jobs/other', '%s'], '0'},
	'zk_multilock_release' => q{ARRAY['/jobs/other', '%s']},
	(map { my $level = $_; map { ("zk_$level$_->[0]_wait" => $_->[1]) } [ lock => q{'%s', '0'} ], [ read_lock => q{'%s', '0'} ], [ write_lock => q{'%s', '0'} ],
		[ semaphore => q{'%s', 2, '0'} ], [ multilock => q{ARRAY['/jobs/other', '%s'], '0'} ] } '', 'xact_'),
	'zk_run_once' => q{'%s'},
	'zk_xact_run_once' => q{'%s'},
	'zk_job_forget' => q{'%s'},
	'zk_lock_is_held' => q{'%s'},
	'zk_lock_token' => q{'%s'},
	'zk_lock_uses' => q{'%s'},
	'zk_lock_remaining' => q{'%s'},
	'zk_lock_is_revoked' => q{'%s'},
	'zk_lock_queue' => q{'%s'},
	'zk_lock_queue_or_null' => q{'%s'},
	'zk_lock_revoke' => q{'%s'},
	'zk_lock_force_release' => q{'%s'},
	'zk_leader_forget' => q{'%s'},
	'zk_claim_request' => q{'%s', '1 min'},
	'zk_claim_wait' => q{(SELECT zk_claim_request('%s', '1 min')), '0'},
	'zk_xact_claim_use' => q{(SELECT zk_claim_request('%s', '1 min'))},
	'zk_claim_renew' => q{(SELECT zk_claim_request('%s', '1 min')), '1 min'},
	'zk_claim_release' => q{(SELECT zk_claim_request('%s', '1 min'))},
	'zk_is_leader' => q{'%s'},
	'zk_leader_resign' => q{'%s'},
	'zk_fence' => q{'%s', 1},
	'zk_cluster_locks' => q{'%s'},
	'zk_path_is_allowed' => q{'%s'});

# zk_claim_wait is a function.
sub call_of
{
	my ($name, $path) = @_;
	return ($name =~ /_wait$/ && $name ne 'zk_claim_wait' ? 'CALL' : 'SELECT') . " $name(" . sprintf($calls{$name}, $path) . ')';
}

my %session_level = map { $_ => 1 } qw(zk_lock_acquire zk_read_lock_acquire zk_write_lock_acquire
	zk_semaphore_acquire zk_multilock_acquire zk_lock_wait zk_read_lock_wait zk_write_lock_wait
	zk_semaphore_wait zk_multilock_wait zk_run_once);

my @functions = split /\n/, $super->query(q{
	SELECT DISTINCT p.proname
	FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
		 CROSS JOIN LATERAL unnest(p.proargtypes) AS type
	WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
		  AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
		  AND type IN ('text'::regtype, 'text[]'::regtype)
	ORDER BY 1});
is(join(' ', grep { !$calls{$_} } @functions), '', 'this test knows how to call each function that takes a path');
is(join(' ', grep { my $name = $_; !grep { $_ eq $name } @functions } sort keys %calls), '', 'and they exist');

# The role has all privileges: what is refused is refused because of the path.
$super->query('GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public TO batch; GRANT SELECT ON zk_cluster_locks TO batch');
my $batch = login('batch');
foreach my $name (@functions)
{
	my $call = call_of($name, '/hidden/lock');
	if ($name eq 'zk_path_is_allowed')
	{
		is($batch->query($call), 'f', "$name: is no secret");
		next;
	}
	if ($name eq 'zk_cluster_locks')
	{
		is($batch->query($call), '', "$name: shows nothing that is not allowed");
		next;
	}
	is_refused($batch->run($call), '/hidden/lock', "$name: not allowed");
	my $own = $name eq 'zk_fence' ? '/jobs/fenced' : "/jobs/$name";
	my $result = $batch->run(call_of($name, $own));
	like($result->{errcode}, qr/^(?:55000)?$/, "$name: allowed");
	$batch->query('SELECT zk_lock_release_all()');
	$batch->query('SELECT count(zk_claim_release(claim)) FROM zk_claims');
}
is($super->query("SELECT count(*) FROM zk_locks WHERE path = '/hidden/lock'"), 0, 'nothing was left behind');
is($zk->exists('/zklock/hidden/lock') ? 1 : 0, 0, 'and ZooKeeper was not asked');
is($batch->query("SELECT string_agg(zk_path_is_allowed(p)::text, ' ') FROM unnest('{/jobs/a,/jobs,/jobs2/a,/reports,/reports/a}'::text[]) AS p"),
	'true false false true false', 'a prefix ends with a slash; without one, a path stands for itself');
is($batch->errcode(q{SELECT zk_path_is_allowed('jobs')}), '22023', 'an invalid path');
is($batch->query('SELECT zk_lock_release_all()'), 0, 'all may be released together');

# --- session level ----------------------------------------------------------------------------

$super->query('ALTER DATABASE pooled SET zklock.session_level = off');
$node->safe_psql('pooled', 'CREATE EXTENSION zklock; GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public TO batch');
my $pooled = login('batch', dbname => 'pooled');
foreach my $name (@functions)
{
	# A path of its own: no role but a superuser takes a lock from the claims of these calls.
	my $result = $pooled->run(call_of($name, "/jobs/pooled/$name"));
	if ($session_level{$name})
	{
		is($result->{errcode}, '42501', "$name: not where zklock.session_level is off");
		like($result->{err}, qr/DETAIL:.*"zklock\.session_level" is off.*HINT:.*zk_xact_/s, "$name: and what to do");
	}
	else
	{
		isnt($result->{errcode}, '42501', "$name: takes no session-level lock");
	}
}
is($pooled->query('SELECT zk_lock_release_all()'), 0, 'no session-level lock came about');
is_refused($pooled->run(try_lock('/hidden/lock')), '/hidden/lock', 'settings of the role hold beside those of the database');
$pooled->quit;
my $program = dirname($ENV{TEMP_CONFIG}) . '/stage' . `pg_config --bindir` =~ s/\n//r . '/zklock-run';
is(system($program, '-d', $node->connstr('pooled'), '/jobs/run', 'true') >> 8, 69, 'zklock-run does not run there');
my $in_pooled = $node->backend(dbname => 'pooled');
is($in_pooled->errcode(q{SELECT zk_lock_acquire('/jobs/super')}), '42501', 'a superuser has the settings of the database, too');
is($in_pooled->query(q{SET zklock.session_level = on; SELECT zk_lock_acquire('/jobs/super')}), 't', 'but may change them');
is($in_pooled->query(q{SET zklock.session_level = off; SELECT zk_lock_release('/jobs/super')}), 't', 'a release is always allowed');
$in_pooled->quit;

# --- views --------------------------------------------------------------------------------------

# The same objects are in use twice: where the role may look, and where it may not.
$super->query('SELECT zk_lock_release_all()');
foreach my $where ('/hidden', '/jobs')
{
	$super->query(qq{
		SELECT zk_lock_acquire('$where/held'), zk_semaphore_acquire('$where/semaphore', 2),
			   zk_read_lock_acquire('$where/read'), zk_run_once('$where/job')});
	$node->wait_until("SELECT zk_is_leader('$where/leader')");
}

# A wait is published if its backend holds something meanwhile.
my %waiter;
foreach my $where ('/hidden', '/jobs')
{
	$zk->create("/zklock$where/blocked/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-", ephemeral => 1, sequence => 1);
	$waiter{$where} = $node->backend;
	$waiter{$where}->query("SET deadlock_timeout = '50ms'; SELECT zk_lock_acquire('$where/before')");
	$waiter{$where}->send("SELECT zk_lock_acquire('$where/blocked')");
}
$node->wait_until(q{SELECT count(*) = 2 FROM zk_waits});

my @sources = split /\n/, $super->query(q{
	SELECT objid::regclass::text
	FROM pg_depend JOIN pg_class c ON c.oid = objid
	WHERE classid = 'pg_class'::regclass AND deptype = 'e' AND relkind = 'v'
		  AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
	UNION ALL
	SELECT proname || '()'
	FROM pg_depend JOIN pg_proc p ON p.oid = objid
	WHERE classid = 'pg_proc'::regclass AND deptype = 'e' AND proretset AND pronargs = pronargdefaults
		  AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
	ORDER BY 1});
$super->query(q{SELECT zk_claim_request('/hidden/claim', '1 h'), zk_claim_request('/jobs/claim', '1 h')});
$node->wait_until(q{SELECT count(*) = 2 FROM zk_claims WHERE path LIKE '%/claim' AND state = 'held'});
cmp_ok(scalar(@sources), '>=', 8, "there are views: @sources");
my %told = map { $_ => 1 } 'zk_claims', 'zk_claims()', 'zk_stat_locks', 'zk_locks', 'zk_locks()', 'zk_jobs', 'zk_jobs()', 'zk_leaders', 'zk_leaderships()', 'zk_waits', 'zk_waits()';
foreach my $source (@sources)
{
	my $count = "SELECT count(*) FILTER (WHERE row::text LIKE '%/hidden/%'), count(*) FILTER (WHERE row::text LIKE '%/jobs/%') FROM $source AS row";
	my ($hidden, $shown) = split /\|/, $super->query($count);
	ok(!$told{$source} || ($hidden > 0 && $shown > 0), "$source: a superuser sees all");
	my ($not_allowed, $allowed) = split /\|/, $batch->query($count);
	is($not_allowed, 0, "$source: a role does not see what it may not use");

	# The statistics show the path only to the role that has used it.
	is($allowed, $shown, "$source: but what it may use") unless $source =~ /^zk_stat_locks/;
}

# A list that comes from the server itself hides nothing from administrators.  Each statement counts what it shows of /hidden.
my @looks = ((map { "SELECT count(*) FROM $_ AS row WHERE row::text LIKE '%/hidden/%'" } sort keys %told),
	"SELECT count(*) FROM zk_blockers(" . $waiter{'/hidden'}->pid . ')',
	map { "SELECT count(*) FROM $_" } "zk_lock_queue('/hidden/held')", "zk_lock_queue_or_null('/hidden/held')", "zk_cluster_locks('/hidden')");
sub sees
{
	my ($backend, $expected, $what) = @_;
	my %shown = map { my $result = $backend->run($_); ($_ => !$result->{errcode} && $result->{out} > 0 ? 't' : 'f') } @looks;
	is(join("\n", grep { $shown{$_} ne $expected } @looks), '', "$what: " . ($expected eq 't' ? 'each look shows' : 'no look shows') . ' the path');
	is($backend->query('SELECT zk_sees_all_paths()'), $expected, "$what: zk_sees_all_paths");
	return;
}
$super->query(q{CREATE ROLE monitor LOGIN; GRANT pg_monitor, pg_signal_backend TO monitor; CREATE ROLE plain LOGIN});
$node->set('zklock.allowed_paths', '');
my ($monitor, $plain) = (login('monitor'), login('plain'));
$super->wait_until(q{SELECT current_setting('zklock.allowed_paths') = ''});
sees($super, 't', 'deny by default: a superuser');
sees($monitor, 't', 'deny by default: a member of pg_read_all_stats');
sees($plain, 'f', 'deny by default: another role');
my $parallel = $super->query(q{SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
is($monitor->query("SET $parallel = on; SELECT zk_sees_all_paths()"), 't', 'deny by default: also in a parallel worker');
$monitor->query("RESET $parallel");
is($monitor->errcode(q{SELECT zk_semaphore_limit('/hidden/semaphore')}), '', 'deny by default: the limit of a semaphore is shown');
is_refused($_->run(try_lock('/hidden/other')), '/hidden/other', 'deny by default: nobody acquires more') foreach $super, $monitor, $plain;
is_refused($super->run("SELECT $_"), '/hidden/held', "deny by default: $_") foreach "zk_job_forget('/hidden/held')", "zk_semaphore_set_limit('/hidden/held', 2)", "zk_leader_resign('/hidden/held')";
foreach my $call ('zk_lock_revoke', 'zk_lock_force_release')
{
	is($super->query("SELECT $call('/hidden/nobody')"), 0, "deny by default: a superuser may call $call");
	is_refused($monitor->run("SELECT $call('/hidden/nobody')"), '/hidden/nobody', "deny by default: $call: a member of pg_signal_backend");
}

# One that belongs to a function, a session, a role or a database hides them as ever.
$super->query(q{SET zklock.allowed_paths = ''});
sees($super, 'f', 'a list of the session');
is_refused($super->run(q{SELECT zk_lock_force_release('/hidden/nobody')}), '/hidden/nobody', 'a list of the session: zk_lock_force_release');
$super->query('RESET zklock.allowed_paths');
sees($super, 't', 'after RESET');
is($super->query(q{BEGIN; SAVEPOINT s; SET LOCAL zklock.allowed_paths = '/jobs/'; SELECT zk_sees_all_paths(); ROLLBACK TO s; SELECT zk_sees_all_paths(); COMMIT}), "f\nt", 'a list of a savepoint');
$super->query(q{CREATE FUNCTION listed() RETURNS boolean LANGUAGE sql SECURITY DEFINER SET zklock.allowed_paths = '/jobs/' RETURN zk_sees_all_paths()});
is($_->query('SELECT listed(), zk_sees_all_paths()'), 'f|' . ($_ == $plain ? 'f' : 't'), 'a list of a function') foreach $super, $monitor, $plain;
$_->quit foreach $monitor, $plain;
foreach my $owner ('ROLE monitor', 'DATABASE postgres', 'ROLE ALL')
{
	$super->query(qq{ALTER $owner SET zklock.allowed_paths = ''});
	$monitor = login('monitor');
	sees($monitor, 'f', "a list by ALTER $owner");
	$super->query("ALTER $owner RESET zklock.allowed_paths");
	$monitor->quit;
}

$node->set('zklock.allowed_paths', '*');
$super->wait_until(q{SELECT current_setting('zklock.allowed_paths') = '*'});
$super->query(q{ALTER SYSTEM SET zklock.allowed_paths = '/jobs/'});
$node->reload;
$super->wait_until(q{SELECT current_setting('zklock.allowed_paths') = '/jobs/'});
sees($super, 't', 'a list by ALTER SYSTEM');
$super->query('ALTER SYSTEM RESET zklock.allowed_paths');
$node->reload;
$super->wait_until(q{SELECT current_setting('zklock.allowed_paths') = '*'});
$super->query('SELECT count(zk_claim_release(claim)) FROM zk_claims');

foreach my $where ('/hidden', '/jobs')
{
	my $blockers = 'SELECT count(*) FROM zk_blockers(' . $waiter{$where}->pid . ')';
	is($super->query($blockers), 1, "zk_blockers, $where: a superuser sees all");
	is($batch->query($blockers), $where eq '/jobs' ? 1 : 0, "zk_blockers, $where: a role sees what it may use");
}
is($batch->query(q{SELECT count(*), count(waiting_since), count(holds) FROM zk_waits}), '1|0|0', 'zk_waits: no times, and nothing that is held');

# A role that guesses a path does not find it in pg_locks, nor does it find a path of its own with the same hash.
is($batch->query(q{SELECT count(*) > 0, count(*) FILTER (WHERE (classid::bigint << 32 | objid::bigint) = hashtextextended('/hidden/held', 0))
	FROM pg_locks WHERE locktype = 'advisory' AND database = 0}), 't|0', 'pg_locks: the hashes do not tell the paths');

is($batch->query(q{SHOW zklock.leader_of}), '/hidden/leader, /jobs/leader', 'settings: are not hidden');

# Each view hides the details of other roles' work.
is($batch->query(q{SELECT count(*) FROM zk_locks WHERE path LIKE '/jobs/%' AND claim = 'held'
	AND (claim_since IS NOT NULL OR token IS NOT NULL OR owned_since IS NOT NULL OR session_count IS NOT NULL)}), 0, 'zk_locks: no times, counts and tokens');
is($batch->query(q{SELECT count(*), count(since) FROM zk_lock_queue('/jobs/held')}), '1|0', 'zk_lock_queue: no times');
is($batch->query(q{SELECT count(*), count(since) FROM zk_leaders}), '1|0', 'zk_leaders: no times');
is($batch->query(q{SELECT count(*), count(tick), count(started_at), count(duration), count(token) FROM zk_jobs WHERE path = '/jobs/job'}), '1|1|0|0|0', 'zk_jobs: no times and tokens, but the tick');
is($batch->query(q{SELECT zk_xact_run_once('/jobs/mine')}), 't', 'its own job');
$node->wait_until(q{SELECT state = 'done' FROM zk_jobs() WHERE path = '/jobs/mine'});
is($batch->query(q{SELECT count(started_at), count(ended_at), count(duration), count(token) FROM zk_jobs WHERE path = '/jobs/mine'}), '1|1|1|1', 'of its own jobs, it sees them');
$super->query('SELECT zk_lock_release_all()');

# --- whose settings -------------------------------------------------------------------------------

# A change reaches new sessions only.
$super->query(q{ALTER ROLE batch SET zklock.allowed_paths = '/other/'});
is($batch->query(try_lock('/jobs/a')), 't', 'a change: a session keeps what it began with');
is($batch->errcode(try_lock('/other/a')), '42501', 'a change: and does not get more');
$batch->quit;
$batch = login('batch');
is_refused($batch->run(try_lock('/jobs/a')), '/jobs/a', 'a change: a new session');
is($batch->query(try_lock('/other/a')), 't', 'a change: has the new value');

# The login role counts, not its groups or SET ROLE.
$super->query(q{ALTER ROLE staff SET zklock.allowed_paths = '/staff/'; ALTER ROLE staff SET zklock.max_locks_per_backend = 0; ALTER ROLE staff SET zklock.session_level = off});
my $grouped = login('grouped');
is($grouped->query(try_lock('/anything')), 't', 'settings of a group: do nothing for its members');
is($grouped->query(q{SET ROLE staff; SELECT zk_lock_acquire('/anything')}), 't', 'settings of a group: nor after SET ROLE');
is($grouped->query('SHOW zklock.allowed_paths'), '*', 'everything is the default');
$grouped->quit;
is_refused($batch->run('SET ROLE staff; ' . try_lock('/staff/a')), '/staff/a', 'SET ROLE gives a role no more');
$batch->query('RESET ROLE');
$super->query('SET SESSION AUTHORIZATION batch');
is($super->query(try_lock('/anything/else')), 't', 'SET SESSION AUTHORIZATION changes nothing, either');
$super->query('RESET SESSION AUTHORIZATION');

# By role and database: the more special setting wins, as in PostgreSQL.
$super->query(q{ALTER DATABASE pooled SET zklock.allowed_paths = '/pool/'; ALTER ROLE grouped IN DATABASE pooled SET zklock.allowed_paths = '/pool/grouped/'});
is($node->safe_psql('pooled', 'SHOW zklock.allowed_paths'), '/pool/', 'the setting of a database');
is($node->safe_psql('pooled', 'SHOW zklock.allowed_paths', extra_params => [ '-U', 'batch' ]), '/other/', 'the setting of a role goes before it');
is($node->safe_psql('pooled', 'SHOW zklock.allowed_paths', extra_params => [ '-U', 'grouped' ]), '/pool/grouped/', 'and that of a role in a database before both');
my ($dump) = run_command([ 'pg_dumpall', '-p', $node->port, '-h', $node->host, '--roles-only' ]);
like($dump, qr{ALTER ROLE batch SET "?zklock\.allowed_paths"? TO '/other/'}, 'pg_dumpall dumps them');

# On a standby.
my $standby = ZklockNode->standby('s', $node);
$standby->wait_until_connected;
my $beside = $standby->backend(extra_params => [ '-U', 'batch' ]);
is_refused($beside->run(try_lock('/jobs/a')), '/jobs/a', 'on a standby, a role has the same settings');
is($beside->query(try_lock('/other/a')), 't', 'and may use the same paths');
$beside->quit;
$standby->stop;

# A value in the configuration file reaches all sessions that have no other one.
$grouped = login('grouped');
$node->configure('zklock.allowed_paths' => '/file/');
$node->reload;
$grouped->wait_until(q{SELECT current_setting('zklock.allowed_paths') = '/file/'});
is_refused($grouped->run(try_lock('/anything')), '/anything', 'a reload of the configuration file reaches sessions');
$node->configure('zklock.allowed_paths' => '*');
$node->reload;
$grouped->wait_until(q{SELECT current_setting('zklock.allowed_paths') = '*'});
ok($super->query(q{SELECT zk_is_leader('/hidden/leader')}), 'the leaderships of the server do not depend on it');
$grouped->quit;

# --- which roles may change them --------------------------------------------------------------------

foreach my $sql ("SET zklock.allowed_paths = '*'", 'RESET zklock.allowed_paths', 'SET zklock.max_locks_per_backend = 5000', 'SET zklock.session_level = on',
	"ALTER ROLE batch SET zklock.allowed_paths = '*'", 'ALTER ROLE batch RESET zklock.allowed_paths',
	"CREATE FUNCTION pg_temp.lift() RETURNS boolean LANGUAGE sql SET zklock.allowed_paths = '*' RETURN true")
{
	is($batch->errcode($sql), '42501', "a role: not $sql");
}
$batch->query('ALTER ROLE batch RESET ALL');
is($node->safe_psql('postgres', 'SHOW zklock.allowed_paths', extra_params => [ '-U', 'batch' ]), '/other/', 'RESET ALL leaves it');
{
	local $ENV{PGOPTIONS} = '-c zklock.allowed_paths=*';
	$node->connect_fails('dbname=postgres user=batch', 'nor can its client',
		expected_stderr => qr/permission denied to set parameter "zklock\.allowed_paths"/);
}

# A security definer function with its own SET lifts the limits for its callers.
my $lock = q{LANGUAGE plpgsql SET zklock.allowed_paths = '/reserved/' AS $$ BEGIN RETURN zk_xact_lock_acquire('/reserved/a', '0'); END $$};
$super->query("CREATE FUNCTION by_superuser() RETURNS boolean SECURITY DEFINER $lock; CREATE FUNCTION by_caller() RETURNS boolean $lock");
is($batch->query('SELECT by_superuser()'), 't', 'a security definer function of a superuser, with its own SET');
is_refused($batch->run(try_lock('/reserved/a')), '/reserved/a', 'beside it, the limits hold');
is($batch->errcode('SELECT by_caller()'), '42501', 'a function that runs with the rights of its caller');
$super->query('GRANT CREATE ON SCHEMA public TO grouped; GRANT SET ON PARAMETER zklock.allowed_paths TO grouped');
$grouped = login('grouped');
$grouped->query("CREATE FUNCTION by_grantee() RETURNS boolean SECURITY DEFINER $lock");
is($batch->query('SELECT by_grantee()'), 't', 'a security definer function of a role that has GRANT SET');
$super->query(q{ALTER ROLE grouped SET zklock.allowed_paths = ''});
$grouped->quit;
$grouped = login('grouped');
is_refused($grouped->run(try_lock('/anything')), '/anything', 'nothing is allowed');
is($grouped->query("SET zklock.allowed_paths = '*'; " . try_lock('/anything')), 't', 'a role that has GRANT SET lifts its own limits');
$grouped->quit;

# --- values -------------------------------------------------------------------------------------------

foreach my $value ('jobs/', '/jobs/*', '/a,,/b', '/a/../b/')
{
	my $result = $super->run("ALTER ROLE batch SET zklock.allowed_paths = '$value'");
	is($result->{errcode}, '22023', "not valid: $value");
	like($result->{err}, qr/DETAIL/, "not valid: $value: and why");
}

# A value that was stored before zklock was loaded was not checked.  It must not turn into the
# default, which allows everything.
$super->query(q{UPDATE pg_db_role_setting SET setconfig = '{"zklock.allowed_paths=/jobs/*, /valid/"}' WHERE setrole = 'batch'::regrole});
my ($rc, $out, $err) = $node->psql('postgres', q{SELECT string_agg(zk_path_is_allowed(p)::text, ' ') FROM unnest('{/jobs/a,/a,/valid/a}'::text[]) AS p}, extra_params => [ '-U', 'batch' ]);
is($out, 'false false true', 'a stored value that is not valid allows no more than it says');
like($err, qr/WARNING:  invalid value for parameter "zklock\.allowed_paths": "\/jobs\/\*, \/valid\/"/, 'and the session is told');
my $parallel = $node->{_pg_version} >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
($rc, $out, $err) = $node->psql('postgres', "SET $parallel = on; SELECT zk_path_is_allowed('/a')", extra_params => [ '-U', 'batch' ]);
is(scalar(() = $err =~ /WARNING:  invalid value/g), 1, '... once, also if a worker computes the result') or diag($err);
$batch->quit;

# --- pg_cron --------------------------------------------------------------------------------------------

SKIP:
{
	skip 'pg_cron is not installed', 2
	  unless $super->query(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_cron'}) > 0;
	$super->query(q{ALTER ROLE batch SET zklock.allowed_paths = '/jobs/'});
	$super->quit;
	$node->configure('shared_preload_libraries' => 'zklock, pg_cron', 'cron.host' => $node->host);
	$node->restart;
	$node->safe_psql('postgres', q{
		CREATE EXTENSION pg_cron;
		CREATE TABLE seen (role name, paths text);
		GRANT INSERT ON seen TO batch, grouped;
		GRANT USAGE ON SCHEMA cron TO batch, grouped});

	# Such a job runs when the server starts.
	$node->safe_psql('postgres', q{SELECT cron.schedule('@reboot', $$INSERT INTO seen VALUES (session_user, current_setting('zklock.allowed_paths'))$$)}, extra_params => [ '-U', $_ ])
	  foreach 'batch', 'grouped';
	$node->restart;
	$node->wait_until('SELECT count(*) = 2 FROM seen');
	is($node->safe_psql('postgres', q{SELECT paths FROM seen WHERE role = 'batch'}), '/jobs/', "pg_cron's jobs have the settings of the job's user");
	is($node->safe_psql('postgres', q{SELECT paths FROM seen WHERE role = 'grouped'}), '', 'each of its own');
}

# --- on the command line --------------------------------------------------------------------------------

$node->stop;
command_ok([ 'pg_ctl', '-w', '-D', $node->data_dir, '-l', $node->logfile, '-o', '-c zklock.allowed_paths=', 'start' ], 'a list on the command line');
$node->_update_pid(1);
is($node->safe_psql('postgres', 'SHOW zklock.allowed_paths; SELECT zk_sees_all_paths()'), "\nt", 'is one of the server');

$node->stop;
done_testing();
