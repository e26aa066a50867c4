
# A transaction that writes on another server as well, through postgres_fdw, which commits
# there at the same stage at which the commit guard may still refuse: the guard comes first.

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

use ZklockNode;
use ZooKeeper;

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('a', $zk, 'zklock.session_timeout' => '30s', 'zklock.on_lost' => 'notice');
$node->safe_psql('postgres', sprintf(<<'END', $node->host, $node->port));
	CREATE TABLE work (what text);
	CREATE EXTENSION postgres_fdw;
	CREATE SERVER remote FOREIGN DATA WRAPPER postgres_fdw
		OPTIONS (host '%s', port '%s', dbname 'postgres');
	CREATE USER MAPPING FOR CURRENT_USER SERVER remote OPTIONS (user 'postgres', password_required 'false');
	CREATE FOREIGN TABLE remote_work (what text) SERVER remote OPTIONS (table_name 'work');
END

sub rows { return $node->safe_psql('postgres', q{SELECT coalesce(string_agg(what, ' ' ORDER BY what), '') FROM work}); }

sub lose
{
	my ($path) = @_;
	$zk->delete("/zklock$path/" . $zk->children("/zklock$path")->[0]);
	$node->wait_until("SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '$path'");
	return;
}

# The connection is opened before the first lock, after it, or in an earlier transaction.
my $acquire = q{SELECT zk_xact_lock_acquire('/guarded')};
my $write = q{INSERT INTO remote_work VALUES ('lost')};
foreach my $case (
	[ 'acquires, then connects', $acquire, $write ],
	[ 'connects, then acquires', $write, $acquire ])
{
	my ($what, @statements) = @$case;
	my $backend = $node->backend;
	foreach my $turn (1, 2)
	{
		$backend->query('BEGIN');
		$backend->query($_) foreach @statements;
		lose('/guarded');
		is($backend->errcode('COMMIT'), 'ZK001', "$what, $turn: the commit is refused");
		is(rows(), '', "$what, $turn: nothing is there, on the other server either");
	}
	$backend->query('BEGIN');
	$backend->query($_ =~ s/lost/kept/r) foreach @statements;
	is($backend->errcode('COMMIT'), '', "$what: with the lock it commits");
	is(rows(), 'kept', "$what: and everything is there");
	$node->safe_psql('postgres', 'TRUNCATE work');
	$backend->quit;
}

# In one statement, whose transaction ends with it.
my $backend = $node->backend;
$backend->query(q{SELECT zk_lock_acquire('/session')});
lose('/session');
is($backend->errcode(q{WITH here AS (INSERT INTO work VALUES ('here')) INSERT INTO remote_work VALUES ('lost')}),
	'ZK001', 'one statement: it is refused');
is(rows(), '', 'one statement: nothing is there');

done_testing();
