
# The tokens in zk_fences on two servers that replicate all tables to each other, and after COPY and a
# restore: whatever writes a row, the greatest token stays, and replication goes on.

use strict;
use warnings;

use ZklockTest qw(!token);

my $zk = ZooKeeper->new;
my %logical = (init => [ allows_streaming => 'logical' ]);
my ($east, $west) = map { ZklockNode->started($_, $zk, %logical) } qw(east west);

my %session = map { $_->name => $_->backend } $east, $west;

sub fence { my ($node, $resource, $token) = @_; return $session{ $node->name }->errcode("SELECT zk_fence('$resource', $token)"); }
sub token { my ($node, $resource) = @_; return $node->safe_psql('postgres', "SELECT token FROM zk_fences WHERE resource = '$resource'"); }

# Once the one has what the other has written, the other gets it back, and so on.
sub catch_up
{
	foreach (1 .. 3)
	{
		$east->wait_for_catchup('from_east');
		$west->wait_for_catchup('from_west');
	}
	return;
}

sub subscribe
{
	my ($from, $to, $publish) = @_;
	my $name = 'from_' . $from->name;
	$from->safe_psql('postgres', "CREATE PUBLICATION everything FOR ALL TABLES $publish");
	$to->safe_psql('postgres', "CREATE SUBSCRIPTION $name CONNECTION '" . $from->connstr . " dbname=postgres' PUBLICATION everything");
	$from->wait_for_catchup($name);
	$to->wait_until(q{SELECT NOT EXISTS (SELECT FROM pg_subscription_rel WHERE srsubstate <> 'r')});
	return;
}

sub errors { my ($node) = @_; return $node->safe_psql('postgres', 'SELECT sum(apply_error_count + sync_error_count) FROM pg_stat_subscription_stats'); }

# Both have rows before they replicate, so the first copy finds them there.
fence($east, $_->[0], $_->[1]) foreach [ 'low', 3 ], [ 'high', 8 ];
fence($west, $_->[0], $_->[1]) foreach [ 'low', 5 ], [ 'high', 6 ];
subscribe($east, $west, '');
is(token($west, 'low'), 5, 'the first copy: a smaller token does not replace a greater one');
is(token($west, 'high'), 8, 'the first copy: a greater token does');
subscribe($west, $east, q{WITH (publish = 'insert, update')});
catch_up();
is(token($_, 'low') . ' ' . token($_, 'high'), '5 8', $_->name . ': the greater ones') foreach $east, $west;

# Each side has a row of the resource when that of the other arrives.
$west->safe_psql('postgres', 'ALTER SUBSCRIPTION from_east DISABLE');
$east->safe_psql('postgres', 'ALTER SUBSCRIPTION from_west DISABLE');
fence($east, 'account', 10);
fence($west, 'account', 7);
$west->safe_psql('postgres', 'ALTER SUBSCRIPTION from_east ENABLE');
$east->safe_psql('postgres', 'ALTER SUBSCRIPTION from_west ENABLE');
catch_up();
foreach my $node ($east, $west)
{
	is(token($node, 'account'), 10, $node->name . ': the greatest token');
	is(fence($node, 'account', 8), 'ZK001', $node->name . ': a smaller one is refused');
}

# An UPDATE arrives.
is(fence($west, 'account', 11), '', 'a greater token is accepted');
catch_up();
is(token($east, 'account'), 11, '... and replicated');
is(fence($east, 'account', 11), '', 'the same token is accepted');
catch_up();

# Nothing goes round for ever: what comes back changes no row.
my @rows = map { $_->safe_psql('postgres', 'SELECT ctid, * FROM zk_fences ORDER BY resource') } $east, $west;
catch_up();
is($east->safe_psql('postgres', 'SELECT ctid, * FROM zk_fences ORDER BY resource'), $rows[0], 'east: no row has changed');
is($west->safe_psql('postgres', 'SELECT ctid, * FROM zk_fences ORDER BY resource'), $rows[1], 'west: no row has changed');

# The row of a transaction that has not ended is not there for an UPDATE, and in the way of an INSERT.
my $session = $west->backend;
$session->query(q{BEGIN; SELECT zk_fence('race', 5)});
fence($east, 'race', 9);
$west->wait_until(q{SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
	WHERE NOT granted AND backend_type LIKE 'logical replication%')});
$session->query('COMMIT');
catch_up();
is(token($_, 'race'), 9, $_->name . ': the greater token of two transactions') foreach $east, $west;

# What an administrator does: DELETE forgets, here only, because deletes are not published.
$west->safe_psql('postgres', q{DELETE FROM zk_fences WHERE resource = 'low'});
catch_up();
is(token($west, 'low'), '', 'DELETE forgets');
is(token($east, 'low'), 5, q{publish = 'insert, update': but not on the subscriber});
is(errors($_), 0, $_->name . ': replication has met no error') foreach $east, $west;

$east->safe_psql('postgres', 'DROP SUBSCRIPTION from_west');
$west->safe_psql('postgres', 'DROP SUBSCRIPTION from_east');

# Dumps of the rows alone, which the owner of the database restores over those that are there.
my $owner = 'CREATE ROLE owner LOGIN; ALTER DATABASE postgres OWNER TO owner';
$east->safe_psql('postgres', $owner);
foreach my $options ([], [ '--inserts' ], [ '--inserts', '--on-conflict-do-nothing' ])
{
	my $dump = "${PostgreSQL::Test::Utils::tmp_check}/rows.sql";
	fence($east, 'restored', 20);
	fence($east, 'older', 20);
	command_ok([ 'pg_dump', '-a', '-t', 'zk_fences', '--extension=zklock', @$options, '-f', $dump, '-d', $east->connstr('postgres') ], "pg_dump -a @$options");
	$east->safe_psql('postgres', q{DELETE FROM zk_fences WHERE resource IN ('restored', 'older')});
	fence($east, 'older', 30);
	command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-U', 'owner', '-f', $dump, '-d', $east->connstr('postgres') ], 'restore');
	is(token($east, 'restored') . ' ' . token($east, 'older'), '20 30', 'what was missing is there, and what was greater has stayed');
	$east->safe_psql('postgres', q{DELETE FROM zk_fences WHERE resource IN ('restored', 'older')});
}

# Other writes, also those that switch off ordinary triggers.
$east->safe_psql('postgres', q{
	SET session_replication_role = replica;
	UPDATE zk_fences SET token = 1 WHERE resource = 'account';
	INSERT INTO zk_fences VALUES ('account', 2) ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token;
	UPDATE zk_fences SET resource = 'high' WHERE resource = 'account'});
is(token($east, 'account'), 11, 'UPDATE lowers no token, and renames none');
is(token($east, 'high'), 11, '... but the new name has it, too');

# The function of the trigger is for this table alone, because it writes with its owner's privileges.
is($east->backend(extra_params => [ '-U', 'owner' ])->errcode(q{
	CREATE TEMP TABLE zk_fences (resource text, token bigint);
	CREATE TRIGGER t BEFORE INSERT ON pg_temp.zk_fences FOR EACH ROW EXECUTE FUNCTION zk_fences_keep()}), '42501',
	'no role attaches the function to another table');
is($session{east}->errcode(q{
	CREATE TABLE mine (resource text, token bigint);
	CREATE TRIGGER t BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION zk_fences_keep();
	INSERT INTO mine VALUES ('account', 99)}), '0A000',
	'and there the function does nothing');

done_testing();
