
# An update of the extension from 1.0, in databases where an administrator has withdrawn every
# privilege and granted it to one role, and where users have built on every object: the update
# changes nobody's privileges and breaks nothing of the users, before and after a dump.  All
# objects come from the catalogue, so that this holds for those of later versions as well.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('node', $zk);
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN; CREATE ROLE nobody LOGIN');

# Each function, procedure, view and table: what it is, a name for what is built on it, its own
# name, what a user would write to use it, its privileges, and its object ID.
my $members = q{
	SELECT CASE WHEN c.oid IS NOT NULL THEN 'TABLE'
				WHEN p.prokind = 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END AS what,
		   'on_' || d.classid || '_' || d.objid,
		   coalesce(c.oid::regclass::text, p.oid::regprocedure::text) AS name,
		   coalesce(c.oid::regclass::text, p.proname || '(' || coalesce((
			   SELECT string_agg('NULL::' || format_type(t.type, NULL), ', ' ORDER BY t.n)
			   FROM unnest(p.proargtypes) WITH ORDINALITY AS t (type, n)), '') || ')'),
		   coalesce(c.relacl::text, p.proacl::text, 'default'),
		   d.objid
	FROM pg_depend AS d
		 LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind IN ('v', 'r')
		 LEFT JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
		  AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
		  AND (c.oid IS NOT NULL OR p.oid IS NOT NULL)
	ORDER BY name};

my %call = (TABLE => 'SELECT * FROM ', FUNCTION => 'SELECT ', PROCEDURE => 'CALL ');

sub members
{
	my ($database) = @_;
	my @fields = qw(what dependent name use acl oid);
	return map { my %member; @member{@fields} = split /\|/; \%member } split /\n/, $node->safe_psql($database, $members);
}

# The privileges of these, without what differs from one database to the next.
sub acls { return join "\n", map { "$_->{name} $_->{acl}" } @_; }

# A database with 1.0, from which all that 1.0 grants to others is withdrawn, and granted to one
# role.  A user's view depends on each object.
sub prepare
{
	my ($database) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $_") foreach $database, "${database}_restored";
	$node->safe_psql($database, q{CREATE EXTENSION zklock VERSION '1.0'});
	foreach my $member (members($database))
	{
		my ($what, $name) = @$member{qw(what name)};
		my ($privilege, $columns) = $what eq 'TABLE' ? qw(SELECT *) : qw(EXECUTE count(*));
		$node->safe_psql($database, qq{
			REVOKE ALL ON $what $name FROM PUBLIC, pg_signal_backend, pg_read_all_stats, pg_database_owner;
			GRANT $privilege ON $what $name TO app;
			CREATE VIEW $member->{dependent} AS SELECT $columns FROM $member->{use};
			GRANT SELECT ON $member->{dependent} TO app});
	}
	return;
}

sub update
{
	my ($database) = @_;
	my @old = members($database);
	my $views = q{SELECT viewname, definition FROM pg_views WHERE viewname LIKE 'on\_%' ORDER BY viewname};
	my $built = $node->safe_psql($database, $views);
	cmp_ok(scalar @old, '>=', 50, "$database: 1.0 has its objects");

	my ($rc, undef, $error) = $node->psql($database, 'ALTER EXTENSION zklock UPDATE');
	is($rc, 0, "$database: the update succeeds") or diag $error;
	is($node->safe_psql($database, $views), $built, "$database: what users have built is as before");
	my %oid = map { $_->{name} => $_->{oid} } members($database);
	is($oid{ $_->{name} }, $_->{oid}, "$database: $_->{name} is the same object") foreach @old;
	are_kept($database, @old);

	my $dump = "${PostgreSQL::Test::Utils::tmp_check}/$database.sql";
	command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr($database) ], "$database: pg_dump");
	command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr("${database}_restored") ], "$database: restore");
	are_kept("${database}_restored", @old);
	return;
}

# Each object of 1.0 has the privileges that the administrator has set.  The role that may use them
# all can read all of its views; the role that may use none finds no way in by newer objects.
sub are_kept
{
	my ($database, @old) = @_;
	my %is_old = map { $_->{name} => 1 } @old;
	my @now = members($database);
	my $app = $node->backend(dbname => $database, extra_params => [ '-U', 'app' ]);
	my $nobody = $node->backend(dbname => $database, extra_params => [ '-U', 'nobody' ]);

	is(acls(grep { $is_old{ $_->{name} } } @now), acls(@old), "$database: the privileges of all objects of 1.0");
	is($app->errcode("SELECT * FROM $_->{use}"), '', "$database: $_->{name} can be read") foreach grep { $_->{what} eq 'TABLE' } @old;
	isnt($app->errcode("SELECT * FROM $_->{dependent}"), '42501', "$database: the user's view of $_->{name}") foreach @old;
	isnt($app->errcode("CALL $_->{use}"), '42501', "$database: $_->{name}, for who may execute its function")
	  foreach grep { $_->{what} eq 'PROCEDURE' } @now;
	cmp_ok(scalar @now, '>', scalar @old, "$database: there are newer objects");
	foreach my $member (@now)
	{
		my $sql = $call{ $member->{what} } . $member->{use};
		is($nobody->errcode($sql), '42501', "$database: $sql, without a privilege");
	}
	$_->quit foreach $app, $nobody;
	return;
}

prepare('updated');
update('updated');

# Here new functions are nobody's by default, but those that the views of 1.0 call are granted.
prepare('hardened');
$node->safe_psql('hardened', 'ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC');
update('hardened');

done_testing();
