
# zklock.commit_requires: no transaction that has written commits unless this server leads, with the
# newest history of the database.

use strict;
use warnings;

use ZklockTest;

my $path = '/leaders/primary';
my $record = '/zklock/.zklock/leaders/leaders%2Fprimary';
my $zk = ZooKeeper->new;
my $north = ZklockNode->started('north', $zk, 'zklock.leader_of' => $path, 'max_prepared_transactions' => 10,
	'wal_log_hints' => 'on', 'wal_keep_size' => '64MB', init => [ allows_streaming => 1 ]);
$north->safe_psql('postgres', 'CREATE TABLE t (v text); CREATE ROLE someone; GRANT ALL ON t TO someone; GRANT ALL ON SCHEMA public TO someone');

sub record { return $zk->get($record)->{data}; }
# The token changes often.
sub history { return record() =~ s/ [0-9a-f]{32} / /r; }
sub leads { my ($node) = @_; return $node->safe_psql('postgres', "SELECT zk_is_leader('$path')"); }
sub wait_until_leads { my ($node) = @_; return $node->wait_until("SELECT zk_is_leader('$path')"); }
sub refused { my ($node) = @_; return $node->status('coalesce(refused_leaderships, $$none$$)'); }
sub count { my ($node, $v) = @_; return $node->safe_psql('postgres', "SELECT count(*) FROM t WHERE v = '$v'"); }

# --- the setting ---

wait_until_leads($north);
my $b = $north->backend;
is($b->errcode(q{INSERT INTO t VALUES ('before')}), '', 'commits');
$zk->wait_until(sub { $zk->exists($record) }, 'the record to be there, also while no commit requires the leadership');
$zk->wait_until(sub { $b->errcode("SET zklock.commit_requires = '$path'; INSERT INTO t VALUES ('known')") eq '' }, 'the guard to know');
$b->query('RESET zklock.commit_requires');
$north->set('zklock.commit_requires', $path);
like(record(), qr{^zklock history 1 \d+ 1 [0-9A-F]+/[0-9A-F]+ [0-9a-f]{32} leads north$}, 'the record of its history');
is(leads($north), 't', 'it leads on meanwhile');
is($b->errcode(q{INSERT INTO t VALUES ('leads')}), '', 'the leader commits');
is($b->errcode(q{BEGIN; INSERT INTO t VALUES ('leads'); PREPARE TRANSACTION 'p'}), '', 'and prepares');
is($b->errcode(q{COMMIT PREPARED 'p'}), '', 'and commits what it has prepared');

foreach ("$path,relative", "$path,,/x", ' ', join(',', map { "/x/$_" } 1 .. 65))
{
	my ($status, $out, $err) = $north->psql('postgres', "ALTER SYSTEM SET zklock.commit_requires = '$_'");
	like($err, qr/invalid value for parameter "zklock.commit_requires".*DETAIL:  .*/s, 'invalid: ' . substr($_, 0, 30));
}
is($north->errcode(q{SET ROLE someone; SET zklock.commit_requires = ''}), '42501', 'not for everybody');
is($north->errcode(q{SET ROLE someone; SET zklock.not_leading = 'terminate'}), '', 'what becomes of the session is its own choice');
is($north->errcode(q{SET zklock.not_leading = 'ignore'}), '22023', 'an invalid choice');

# --- the path is closed to backends ---

# Each lock below it would make its directory larger.
foreach my $closed ($path, "$path/below", "$path/far/below")
{
	foreach ("zk_claim_request('$closed', '1 s')", "zk_lock_acquire('$closed', '0')", "zk_xact_lock_acquire('$closed', '0')",
		"zk_read_lock_acquire('$closed', '0')", "zk_multilock_acquire(ARRAY['/x', '$closed'], '0')", "zk_semaphore_acquire('$closed', 1, '0')",
		"zk_semaphore_acquire('$closed', 1)", "zk_semaphore_set_limit('$closed', 1)", "zk_run_once('$closed')")
	{
		is($north->errcode("SELECT $_"), '42501', "closed to others: $_");
	}
}
is($north->safe_psql('postgres', "SELECT zk_lock_acquire('${path}_beside', '1 min')"), 't', '... but a path beside it is not');

# The inner mutex of a semaphore is the path of a lock, too.
my $inner = q{SET zklock.commit_requires = '/semaphore/locks'};
foreach ("zk_claim_request('/semaphore/locks', '1 s')", "zk_semaphore_acquire('/semaphore', 1, '1 min')", "zk_xact_semaphore_acquire('/semaphore', 1, '1 min')")
{
	is($north->errcode("$inner; SELECT $_"), '42501', "closed to others, an inner mutex: $_");
}
is($north->safe_psql('postgres', q{SELECT zk_semaphore_acquire('/semaphore', 1, '1 min')}), 't', 'nothing is left of that');

# --- not leading ---

# Sessions with temporary objects, and with what they have not committed.
my @ends = map { $north->backend } 1 .. 4;
$ends[0]->query(q{CREATE TEMP TABLE gone AS SELECT 'x' AS v});
$ends[1]->query(q{CREATE FUNCTION pg_temp.gone() RETURNS int LANGUAGE sql AS 'SELECT 1'});
$ends[2]->query(q{CREATE TEMP TABLE gone (v text); SELECT zk_lock_acquire('/gone')});
$ends[3]->query(q{CREATE TEMP TABLE gone (v text)});
is($ends[3]->errcode(q{BEGIN; INSERT INTO t VALUES ('left')}), '', 'a session is left in a transaction');

is($north->safe_psql('postgres', "SELECT zk_leader_resign('$path', '1 hour')"), 't', 'resigned');
my $at = -s $north->logfile;
foreach (
	[ q{INSERT INTO t VALUES ('refused')}, 'INSERT' ],
	[ q{UPDATE t SET v = 'refused'}, 'UPDATE' ],
	[ q{SELECT * FROM t FOR UPDATE}, 'FOR UPDATE' ],
	[ q{WITH x AS (DELETE FROM t RETURNING v) SELECT * FROM x}, 'a CTE that deletes' ],
	[ q{DO $$ BEGIN INSERT INTO t VALUES ('refused'); END $$}, 'in PL/pgSQL' ],
	[ q{COPY t FROM '/dev/null'}, 'COPY FROM' ],
	[ q{TRUNCATE t}, 'TRUNCATE' ],
	[ q{CREATE TABLE refused ()}, 'CREATE TABLE' ],
	[ q{CREATE TEMP TABLE refused ()}, 'a temporary table' ],
	[ q{CREATE DATABASE refused}, 'CREATE DATABASE' ],
	[ q{DROP DATABASE template1}, 'DROP DATABASE' ],
	[ q{ALTER ROLE someone LOGIN}, 'ALTER ROLE' ],
	[ q{EXPLAIN ANALYZE INSERT INTO t VALUES ('refused')}, 'EXPLAIN ANALYZE' ],
	[ q{SELECT pg_current_xact_id()}, 'a transaction ID, at the commit' ],
	[ q{SELECT lo_create(0)}, 'a function in C, at the commit' ],
	[ q{NOTIFY x}, 'NOTIFY, at the commit' ],
	[ q{LISTEN x}, 'LISTEN, at the commit' ],
	[ q{SELECT zk_xact_run_once('/jobs/deposed', '2024-05-05 02:00Z')}, 'a job in a transaction' ],
	[ q{SELECT 1 FROM pg_advisory_lock(1), pg_current_xact_id()}, 'whatever else it does' ])
{
	my ($sql, $what) = @$_;
	is($b->errcode($sql), '25006', "refused: $what");
}
foreach (q{SELECT * FROM t}, q{EXPLAIN INSERT INTO t VALUES ('x')}, q{PREPARE ins AS INSERT INTO t VALUES ('x')}, q{SET work_mem = '8MB'},
	q{BEGIN; SELECT 1; COMMIT}, q{CHECKPOINT}, q{SELECT pg_advisory_lock(2)}, q{DISCARD ALL}, q{BEGIN; SAVEPOINT s; ROLLBACK})
{
	is($b->errcode($_), '', "not refused: $_");
}
is($b->query(q{SELECT count(*) FROM zk_jobs() WHERE path = '/jobs/deposed'}), 0, 'which has not used up its tick');
is($b->query(q{SELECT zk_run_once('/jobs/deposed', '2024-05-05 02:00Z'), zk_lock_release('/jobs/deposed')}), 't|t', 'a session may run it');
is($b->query(q{SELECT zk_xact_run_once('/jobs/deposed', '2024-05-05 02:00Z')}), 'f', 'and then the tick is used');
is($b->errcode(q{BEGIN; INSERT INTO t VALUES ('refused')}), '25006', 'in a transaction block');
is($b->errcode('COMMIT'), '', 'which rolls back');
is($b->errcode(q{BEGIN; SELECT 1; PREPARE TRANSACTION 'p'}), '25006', 'a vote is refused');
my $result = $b->run(q{INSERT INTO t VALUES ('refused')});
like($result->{err}, qr/cannot write, because this server does not lead "$path"\nDETAIL:.*\nHINT:/, 'says why');

# A session that ends removes its temporary objects, and nothing else.  One of them has also lost a lock.
$at = -s $north->logfile;
$zk->delete('/zklock/gone/' . $zk->children('/zklock/gone')->[0]);
$north->wait_until(q{SELECT NOT EXISTS (SELECT FROM zk_locks WHERE path = '/gone' AND granted)});
$_->quit foreach @ends;
$north->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid NOT IN (} . $b->query('SELECT pg_backend_pid()') . ')');
is($north->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relpersistence = 't'}), '0', 'temporary tables go with their sessions');
is($north->safe_psql('postgres', q{SELECT count(*) FROM pg_proc WHERE proname = 'gone'}), '0', 'so do temporary functions');
unlike(slurp_file($north->logfile, $at), qr/(FATAL|ERROR):/, 'which is no error');
is(count($north, 'left'), 0, 'what such a session had not committed is gone');

# The guard alone refuses what was written while the server led.
wait_until_leads($north) if $north->safe_psql('postgres', "SELECT zk_leader_resign('$path')") eq 'f';
my ($open, $prepares, $idle) = map { $north->backend } 1 .. 3;
$_->query(q{BEGIN; INSERT INTO t VALUES ('late')}) foreach $open, $prepares;
is($b->errcode(q{BEGIN; INSERT INTO t VALUES ('promised'); PREPARE TRANSACTION 'p'}), '', 'prepared');
$north->safe_psql('postgres', "SELECT zk_leader_resign('$path', '1 hour')");
is($open->errcode('COMMIT'), '25006', 'written while it led: not committed');
is($prepares->errcode(q{PREPARE TRANSACTION 'late'}), '25006', 'written while it led: not prepared');
is($b->errcode(q{COMMIT PREPARED 'p'}), '25006', 'prepared while it led: not committed');
is(count($north, 'late') . count($north, 'promised') . count($north, 'refused'), '000', 'nothing of it is there');

# A superuser who has to.
is($b->errcode(q{SET zklock.commit_requires = ''; INSERT INTO t VALUES ('forced')}), '', 'a superuser writes');
like(slurp_file($north->logfile, $at), qr/this session sets "zklock.commit_requires" from "$path" to ""/, 'which is logged');
is($b->errcode(q{RESET zklock.commit_requires; BEGIN; SET LOCAL zklock.commit_requires = ''; INSERT INTO t VALUES ('forced'); COMMIT}), '', 'in one transaction');
is($b->errcode(q{BEGIN; SET LOCAL zklock.commit_requires = ''; INSERT INTO t VALUES ('x'); SET LOCAL zklock.commit_requires = '/other'; COMMIT}), '55000',
	'what holds at the commit counts');
is($b->errcode(q{INSERT INTO t VALUES ('refused')}), '25006', 'and as before');
$b->quit;

# A pool shall connect elsewhere.
$b = $north->backend;
$b->query(q{SET zklock.not_leading = 'terminate'});
is($b->errcode('SELECT 1'), '', 'terminate: reads');
like(eval { $b->run(q{INSERT INTO t VALUES ('refused')})->{err} } // $@, qr/57P01|terminat|FATAL|connection to server was lost/, 'terminate: the session ends');
eval { $b->quit };

# --- where it is not required ---

is($north->errcode('VACUUM ANALYZE pg_class'), '25006', 'VACUUM and ANALYZE of a user need transaction IDs');
$north->set('zklock.commit_requires', "$path,/other");
$north->wait_for_log(qr{WARNING: .*"zklock.commit_requires" names "/other", but "zklock.leader_of" does not}, $at);
pass('a path for which this server does not stand: the log warns');
$north->safe_psql('postgres', "SELECT zk_leader_resign('$path')");
wait_until_leads($north);
is($north->errcode(q{INSERT INTO t VALUES ('refused')}), '55000', 'and the first write says so');
$north->set('zklock.commit_requires', $path);
is($north->errcode(q{COMMIT PREPARED 'p'}), '', 'prepared before, committed now');

# A value that was stored unchecked, and is not valid, allows no writes: even if this server leads the first 64 paths of
# it, or what is left of a path that is cut off.
my $longest = '/long/' . 'x' x 249;
$north->set('zklock.leader_of', "$path,$longest");
$north->wait_until("SELECT zk_is_leader('$path') AND zk_is_leader('$longest')");
foreach (join(',', ($path) x 64, '/other'), "${longest}x")
{
	$north->safe_psql('template1', "INSERT INTO pg_db_role_setting SELECT oid, 0, ARRAY['zklock.commit_requires=$_'] FROM pg_database WHERE datname = 'postgres'");
	my $stored = $north->backend;
	is($stored->errcode(q{INSERT INTO t VALUES ('refused')}), '22023', 'stored, and not valid: ' . substr($_, -10));
	$stored->quit;
	$north->safe_psql('template1', 'ALTER DATABASE postgres RESET zklock.commit_requires');
}
$north->set('zklock.leader_of', $path);

# --- only the newest history leads ---

my $south = ZklockNode->standby('south', $north);
# This one stands later, so that it does not lead first.
my $twin = ZklockNode->standby('twin', $north, 'zklock.leader_of' => '');
$north->wait_for_catchup($_, 'replay') foreach $south, $twin;
my $first = history();
$north->restart;
wait_until_leads($north);
is(history(), $first, 'a restart is the same history');
$north->kill9_all;
$north->start;
wait_until_leads($north);
is(history(), $first, 'so is a crash');

# What a backend of a standby has found out is not enough when that is promoted.
my $held = $twin->backend;
is($held->query(q{SELECT zk_lock_acquire('/held')}) . $held->query('SELECT 1'), 't1', 'a backend of a standby has a lock');

# South is promoted while north stays up; south leads, then stops.
$south->promote;
$twin->promote;
is($held->errcode('SELECT pg_current_xact_id()'), '55000', 'after the promotion, it commits nothing');
$held->quit;
is($south->errcode(q{INSERT INTO t VALUES ('waits')}), '25006', 'a promoted standby does not commit while the old primary leads');
$north->safe_psql('postgres', "SELECT zk_leader_resign('$path', '1 hour')");
wait_until_leads($south);
like(record(), qr/^zklock history 1 \d+ 2 .* south$/, 'the new primary leads, and the record has its history');
is($south->errcode(q{INSERT INTO t VALUES ('new')}), '', 'and commits');
$south->stop;
$north->safe_psql('postgres', "SELECT zk_leader_resign('$path')");
$north->wait_for_log(qr/this server must not lead "$path"\n.*DETAIL: .*Server "south" led last, from .* on timeline 2, which is not in the history of this server's timeline 1\.\n.*HINT: .*zk_leader_forget\('$path'\)/);
$result = $north->backend;
like($result->run(q{INSERT INTO t VALUES ('old')})->{err}, qr/25006.*Server "south" led last/s, 'the old history does not lead, and commits nothing');
$result->quit;
like(refused($north), qr{^$path: Server "south" led last}, 'zk_status says so');
$twin->set('zklock.leader_of', $path);
$twin->wait_for_log(qr/Server "south" led last, on a timeline 2 that is not this server's timeline 2\./);
is(leads($twin), 'f', 'nor does another timeline with the same number');
$south->start;
wait_until_leads($south);
is($south->errcode(q{INSERT INTO t VALUES ('again')}), '', 'the newest does');
is(refused($south), 'none', 'and nothing is refused');

# A standby of the newest may lead next.
my $next = ZklockNode->standby('next', $south);
$south->wait_for_catchup($next, 'replay');
$south->stop;
$next->promote;
wait_until_leads($next);
is($next->errcode(q{INSERT INTO t VALUES ('next')}), '', 'a standby of the newest leads next');
like(record(), qr/^zklock history 1 \d+ 3 .* next$/, 'and its history is the newest');

# A copy that was not promoted.
$next->backup('copy');
my $copy = ZklockNode->new('copy');
$copy->init_from_backup($next, 'copy');
$copy->configure('zklock.node_name' => 'copy');
$copy->start;
$next->stop;
$copy->wait_for_log(qr/Server "next" led last, on a timeline 3 that is not this server's timeline 3\./);
is(leads($copy), 'f', 'a copy that runs by itself does not lead');

# A superuser decides.
$_->stop foreach $twin, $north;
is($copy->errcode("SET zklock.commit_requires = ''; SET ROLE someone; SELECT zk_leader_forget('$path')"), '42501', 'not everybody makes it forget');
is($copy->safe_psql('postgres', "SELECT zk_leader_forget('$path'), zk_leader_forget('$path')"), 't|t', 'the history is forgotten, once and again');
is($copy->safe_psql('postgres', "SELECT zk_leader_forget('/leaders/none')"), 'f', 'that of no leadership is none');
wait_until_leads($copy);
is($copy->errcode(q{INSERT INTO t VALUES ('copy')}), '', 'and any server may lead');

$zk->set($record, 'rubbish');
$copy->safe_psql('postgres', "SELECT zk_leader_resign('$path')");
$copy->wait_for_log(qr/The record of the server that led last cannot be read\./);
is(leads($copy), 'f', 'what is no record allows nothing');

$copy->stop;
done_testing();
