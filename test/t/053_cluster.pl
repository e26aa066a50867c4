
# The view of the cluster: its servers, all its locks, a name that two servers have, and an
# ensemble that has lost its data.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = ('zklock.connection_timeout' => '1min', 'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', $zk, %settings, init => [ allows_streaming => 1 ]);
my $servers = '/zklock/.zklock/servers';
my $spent = 'SELECT creates, lists, reads, writes, deletes, unwatches FROM zk_stat';
my $warning = qr/WARNING:  another server has the name "a", too/;

sub wait_until_joined
{
	my ($node, $name) = @_;
	my $session = $node->status('session_id') =~ s/^0x0*//r;
	return $zk->wait_for_children("$servers/" . ($name // $node->name), sub { grep { /^0*$session$/ } @{ $_[0] } });
}

# --- the servers ---

wait_until_joined($node_a);
$node_a->wait_until('SELECT lists = 2 FROM zk_stat');
my $before = $node_a->safe_psql('postgres', $spent);
my $node_b = ZklockNode->started('b', $zk, %settings, 'zklock.node_name' => 'Bär/%.');
$zk->wait_for_children($servers, 2);
is($node_a->safe_psql('postgres', $spent), $before, 'another server costs this one no request');
is_deeply($zk->children($servers), [ 'B%C3%A4r%2F%25.', 'a' ], 'any name is that of a znode');
$zk->wait_for_children("$servers/B%C3%A4r%2F%25.", 1);

is($node_b->safe_psql('postgres', q{SELECT node_name, zklock_version = zk_version(), postgresql_version = split_part(current_setting('server_version'), ' ', 1),
	host LIKE '%:' || CASE node_name WHEN 'a' THEN '} . $node_a->port . q{' ELSE current_setting('port') END,
	abs(extract(epoch FROM now() - since)) < 600 FROM zk_servers ORDER BY node_name COLLATE "C"}),
	"Bär/%.|t|t|t|t\na|t|t|t|t", 'zk_servers: both servers');
$node_a->safe_psql('postgres', 'CREATE ROLE plain; CREATE ROLE monitor; GRANT pg_monitor TO monitor');
is($node_a->safe_psql('postgres', 'SET ROLE plain; SELECT node_name, host, since, system_identifier, is_standby FROM zk_servers ORDER BY node_name COLLATE "C" DESC LIMIT 1'),
	'a||||', 'a plain role sees no hosts');
is($node_b->safe_psql('postgres', q{SELECT is_standby, count(DISTINCT s.system_identifier), bool_or(s.system_identifier = c.system_identifier)
	FROM zk_servers AS s, pg_control_system() AS c GROUP BY is_standby}), 'f|2|t', 'two primaries with two databases');

# --- all locks ---

my ($a1, $a2, $b1, $b2, $b3) = map { $_->backend } $node_a, $node_a, $node_b, $node_b, $node_b;
$a1->query(q{SELECT zk_lock_acquire('/jobs/nightly'), zk_read_lock_acquire('/jobs/nightly/inside'), zk_semaphore_acquire('/pool', 2, quantity => 2)});
$a2->query(q{BEGIN; SELECT zk_xact_lock_acquire('/app/leases')});
$b1->send(acquire('/jobs/nightly'));
$b2->send(q{SELECT zk_write_lock_acquire('/jobs/nightly/inside')});
$b3->send(q{SELECT zk_semaphore_acquire('/pool', 2)});
$zk->create('/zklock/theirs/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-', ephemeral => 1, sequence => 1, client => 'curator', data => "\x01");
$zk->create('/zklock/nothing/in/here');
$zk->wait_for_children('/zklock/pool/leases', 3);
$zk->wait_for_children('/zklock/pool/locks', 1);
$zk->wait_for_children("/zklock/$_", sub { 2 == grep { /^_c_/ } @{ $_[0] } }) foreach 'jobs/nightly', 'jobs/nightly/inside';

# The same as the queue of each says.
my $columns = 'position, znode, kind, mode, holds, client, server, pid, database, role, application, since';
my $walked = "SELECT path, $columns FROM zk_cluster_locks";
my $single = "SELECT p, $columns FROM unnest('{/jobs/nightly,/jobs/nightly/inside,/pool,/app/leases,/theirs}'::text[]) AS p, zk_lock_queue(p)";
is($node_b->safe_psql('postgres', "SELECT count(*), count(*) FILTER (WHERE holds) FROM zk_cluster_locks"), '10|6', 'zk_cluster_locks: all holders and waiters');
is($node_b->safe_psql('postgres', "($walked EXCEPT $single) UNION ALL ($single EXCEPT $walked)"), '', 'as zk_lock_queue shows them');
is($node_b->safe_psql('postgres', q{SELECT server, count(*) FROM zk_cluster_locks WHERE holds GROUP BY server ORDER BY server COLLATE "C"}),
	"a|5\n|1", 'so locks can be counted by server');
is($node_b->safe_psql('postgres', q{SELECT string_agg(DISTINCT path, ' ' ORDER BY path) FROM zk_cluster_locks('/jobs')}),
	'/jobs/nightly /jobs/nightly/inside', 'those below a path');
is($node_b->safe_psql('postgres', q{SELECT DISTINCT path FROM zk_cluster_locks('/pool')}), '/pool', 'those at a path');
is($node_b->safe_psql('postgres', q{SELECT count(*) FROM zk_cluster_locks('/none')}), '0', 'there are none');
is($node_b->safe_psql('postgres', q{SET zklock.allowed_paths = '/jobs/'; SELECT DISTINCT split_part(path, '/', 2) FROM zk_cluster_locks}), 'jobs',
	'zklock.allowed_paths chooses');
$zk->create('/zklock/hidden', perms => 'wcda');
$zk->create('/zklock/hidden/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-', ephemeral => 1, sequence => 1, client => 'curator', data => "\x01");
is($node_b->safe_psql('postgres', 'SELECT count(*) FROM zk_cluster_locks'), '10', 'a directory that ZooKeeper does not let it list is left out');
is($node_a->errcode("SET ROLE plain; SELECT count(*) FROM $_"), '42501', "$_: not for any role") foreach 'zk_cluster_locks', 'zk_cluster_locks()';
is($node_a->safe_psql('postgres', 'SET ROLE monitor; SELECT count(*) FROM zk_cluster_locks'), '10', 'but for pg_monitor');
is($node_b->errcode(q{SELECT count(*) FROM zk_cluster_locks('/hidden')}), '28000', 'but it is not when it is the path that was named');
$node_b->safe_psql("postgres", "SELECT pg_cancel_backend(" . $_->pid . ")") foreach $b1, $b2, $b3;
$_->result foreach $b1, $b2, $b3;

$zk->create_many('/zklock/many', 20_000);
is($node_a->errcode('SELECT count(*) FROM zk_cluster_locks'), '54000', 'there is a bound');
is($node_a->safe_psql('postgres', q{SELECT DISTINCT path FROM zk_cluster_locks('/pool')}), '/pool', 'to what one call reads');
$_->quit foreach $a1, $a2, $b1, $b2, $b3;

$zk->allow($servers, 'wcda');
is($node_a->errcode('SELECT count(*) FROM zk_servers'), '28000', 'an access control list that hides the servers is an error');
$zk->allow($servers, 'rwcda');

# --- the record comes back ---

my $since = q{SELECT since FROM zk_servers WHERE node_name = 'a'};
my $then = $node_a->safe_psql('postgres', $since);
kill 'TERM', my $worker = $node_a->worker_pid;
$node_a->wait_until("SELECT worker_pid <> $worker FROM zk_status");
$node_a->wait_until_connected;
is($node_a->safe_psql('postgres', $since), $then, 'another worker: the same record');
$zk->delete("$servers/a/$_") foreach @{ $zk->children("$servers/a") };
wait_until_joined($node_a);
isnt($node_a->safe_psql('postgres', $since), $then, 'a record that was deleted is made again');
$node_a->expire_session($zk, by_hand => 1);
wait_until_joined($node_a);
$zk->wait_for_children("$servers/a", 1);
pass('the next session has another');

# --- two servers with one name ---

# What follows takes some session timeouts.
$_->set_session_timeout($zk, '8s') foreach $node_a, $node_b;
wait_until_joined($node_a);

# The server's own earlier session is no other server, although it may live on.
$node_a->kill9_all;
unlink $node_a->data_dir . '/pg_stat_tmp/zklock.session';
$node_a->start;
$node_a->wait_until_connected;
wait_until_joined($node_a);
$zk->wait_for_children("$servers/a", 1);
unlike(slurp_file($node_a->logfile), $warning, 'a server is no other than itself');

my $copy = ZklockNode->standby('copy', $node_a, 'zklock.node_name' => 'a');
$_->wait_until('SELECT namesakes = 1 FROM zk_status') foreach $node_a, $copy;
like(slurp_file($_->logfile), $warning, $_->name . ': another server has the same name') foreach $node_a, $copy;
is($node_b->status('namesakes'), '0', 'which concerns no third one');
my $both = q{SELECT count(*), count(DISTINCT host), count(DISTINCT system_identifier), count(*) FILTER (WHERE is_standby) FROM zk_servers WHERE node_name = 'a'};
is($node_b->safe_psql('postgres', $both), '2|2|1|1', 'zk_servers shows both');

# --- two primaries with one database ---

is($_->status('clones'), '0', $_->name . ': a standby is no clone') foreach $node_a, $copy;
my $session = $copy->status('session_id');
$copy->promote;
$node_b->wait_until($both =~ s/^SELECT (.*) FROM zk_servers/SELECT ($1) = (2, 2, 1, 0) FROM zk_servers/r);
is($copy->status('session_id'), $session, 'a server that is promoted says so in the same session');
my $cloned = qr/WARNING:  another primary has the database system identifier of this server, too/;
$_->wait_until('SELECT clones = 1 FROM zk_status') foreach $node_a, $copy;
is(scalar(() = slurp_file($_->logfile) =~ /$cloned/g), 1, $_->name . ': one warning of the other') foreach $node_a, $copy;
is($node_b->status('clones'), '0', 'which concerns no third one');
$copy->stop;
$node_a->wait_until('SELECT namesakes = 0 FROM zk_status');
$node_a->wait_until('SELECT clones = 0 FROM zk_status');
like(slurp_file($node_a->logfile), qr/LOG:  no other server has the name "a" any more/, 'until one of them ends');

# --- an ensemble that is none of ZooKeeper's ---

my $keeper = qr/WARNING:  "zklock\.hosts" seems to name servers of ClickHouse Keeper/;
unlike(slurp_file($_->logfile), $keeper, $_->name . ': this ensemble is one of ZooKeeper') foreach $node_a, $node_b;
$zk->create('/keeper/api_version', data => '1');
my $log = -s $node_a->logfile;
foreach my $n (1, 2)
{
	$node_a->expire_session($zk, by_hand => 1);
	wait_until_joined($node_a);
}
is(scalar(() = slurp_file($node_a->logfile, $log) =~ /$keeper/g), 1, 'a znode of ClickHouse Keeper: one warning');
$zk->delete($_) foreach '/keeper/api_version', '/keeper';

# --- the ensemble has lost its data ---

sub ensemble { return join ' ', map { $_->status(q{ensemble_id || '|' || ensemble_changes}) } $node_a, $node_b; }
sub lose_data { $zk->stop; $zk->forget(1); $zk->start; return; }

my ($one) = ensemble() =~ /^(\S+)\|0 \1\|0$/;
ok($one, 'both servers know the same ensemble, which has not changed');
$zk->restart;
$_->wait_until_connected foreach $node_a, $node_b;
wait_until_joined($node_a);
is(ensemble(), "$one|0 $one|0", 'nor after a restart');
my $at = -s $node_a->logfile;
lose_data();
$_->wait_until('SELECT ensemble_changes = 1 FROM zk_status') foreach $node_a, $node_b;
my ($other) = ensemble() =~ /^(\S+)\|1 \1\|1$/;
ok($other, 'data were lost: another ensemble, for both');
isnt($other, $one, 'than before');
$node_a->wait_for_log(qr/WARNING:  ZooKeeper does not have the data that this server has used before\n.*DETAIL:  The directory "$servers" was created at 2/, $at);
$node_a->stop;
lose_data();
$node_a->start;
$node_a->wait_until(q{SELECT ensemble_changes = 1 FROM zk_status});
isnt($node_a->status('ensemble_id'), $other, 'a server that was down meanwhile notices it, too');

done_testing();
